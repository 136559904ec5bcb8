package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// keepSecret calls create, which returns what it has made, for errors, and where its secret is: one that
// the server may not show again.
//
// A terminal shows it. Any other output may be kept where others read it: the journal of
// a service, the log of a pipeline, the file of a redirection with its ordinary
// permissions. So the secret is moved to a file that only its user can read, and keepSecret returns
// the file's path. That holds with -o json too, as the same outputs are kept. kind is the beginning of
// the file's name, which is in the folder of `muster login`.
func keepSecret(out io.Writer, kind string, create func() (made string, secret **string, err error)) (path string, err error) {
	if isTerminal(out) {
		_, _, err := create()
		return "", err
	}
	file, err := secretFile(kind) // before there is a secret that could not be shown
	if err != nil {
		return "", fmt.Errorf("the output is no terminal, so the secret has to go into a file: %w", err)
	}
	made, secret, err := create()
	if err != nil || *secret == nil {
		return "", errors.Join(err, file.Close(), os.Remove(file.Name()))
	}
	_, err = fmt.Fprintln(file, **secret)
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return "", fmt.Errorf("%s: the secret exists and could not be written: %w: if it is shown only once, revoke it and create another", made, err)
	}
	*secret = nil
	return file.Name(), nil
}

func secretFile(kind string) (*os.File, error) {
	path, err := contextFile()
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o700)
	}
	if err != nil {
		return nil, err
	}
	return os.CreateTemp(filepath.Dir(path), kind+"-*") // its mode is 0600
}

// shownSecret is the line of the human output about a secret.
func shownSecret(secret *string, file string) string {
	if secret != nil {
		return *secret
	}
	return "The secret is in " + file + ", readable by you alone. Remove the file when you have copied it."
}
