package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// newSecret receives a secret of a server, such as one that it is about to create and cannot
// show again.
//
// A terminal shows it. Any other output may be kept where others read it: the journal of
// a service, the log of a pipeline, the file of a redirection with its ordinary
// permissions. So the secret is written to a file that only its user can read, and the
// output has the file's path. That holds with -o json too, as the same outputs are kept.
type newSecret struct{ file *os.File }

// openSecret prepares to receive a secret: it must be known before the secret is created
// that it can be shown. kind is the beginning of the file's name, which is in the folder
// of `muster login`.
func openSecret(out io.Writer, kind string) (*newSecret, error) {
	if isTerminal(out) {
		return &newSecret{}, nil
	}
	path, err := contextFile()
	if err != nil {
		return nil, fmt.Errorf("the output is no terminal, so the secret has to go into a file: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("the output is no terminal, so the secret has to go into a file: %w", err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), kind+"-*") // its mode is 0600
	if err != nil {
		return nil, fmt.Errorf("the output is no terminal, so the secret has to go into a file: %w", err)
	}
	return &newSecret{f}, nil
}

// keep returns what the output may have: the secret for a terminal, or else the path of
// the file that has it, which keep writes.
func (s *newSecret) keep(secret *string) (shown *string, file string, err error) {
	if s.file == nil || secret == nil {
		return secret, "", nil
	}
	_, err = fmt.Fprintln(s.file, *secret)
	if err == nil {
		err = s.file.Sync()
	}
	if err != nil {
		return nil, "", fmt.Errorf("the secret exists and could not be written: %w: if it is shown only once, revoke it and create another", err)
	}
	file = s.file.Name()
	err = s.file.Close()
	s.file = nil
	return nil, file, err
}

// discard removes the file if nothing was kept in it.
func (s *newSecret) discard() {
	if s.file != nil {
		_ = errors.Join(s.file.Close(), os.Remove(s.file.Name()))
	}
}

// shownSecret is the line of the human output about a secret.
func shownSecret(secret *string, file string) string {
	if secret != nil {
		return *secret
	}
	return "The secret is in " + file + ", readable by you alone. Remove the file when you have copied it."
}
