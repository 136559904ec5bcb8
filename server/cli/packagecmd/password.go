package packagecmd

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/muster-fleet/muster/packaging/pkg/trust"
)

// passwordEnv is the environment variable with the password of a private key, used if
// --password-file is not given.
const passwordEnv = "MUSTER_KEY_PASSWORD"

// passwordSource reads the password of a key from a file, the environment or a terminal,
// in this order.
type passwordSource struct{ file string }

func (s *passwordSource) addFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&s.file, "password-file", "", "file with the password of the private key (default: $"+passwordEnv+", or a prompt)")
}

func (s passwordSource) read(cmd *cobra.Command, prompt string) (string, error) {
	if s.file != "" {
		data, err := os.ReadFile(s.file)
		if err != nil {
			return "", fmt.Errorf("--password-file: %w", err)
		}
		word := strings.TrimRight(string(data), "\r\n")
		if word == "" {
			return "", fmt.Errorf("--password-file: %s is empty", s.file)
		}
		return word, nil
	}
	if word := os.Getenv(passwordEnv); word != "" {
		return word, nil
	}
	return ask(cmd, prompt)
}

// readNew reads the password for a new key. It prompts twice, since the terminal does not
// show what is typed.
func (s passwordSource) readNew(cmd *cobra.Command) (string, error) {
	if s.file != "" || os.Getenv(passwordEnv) != "" {
		return s.read(cmd, "")
	}
	first, err := ask(cmd, "Password for the new key: ")
	if err != nil {
		return "", err
	}
	second, err := ask(cmd, "Repeat the password: ")
	if err != nil {
		return "", err
	}
	if first != second {
		return "", errors.New("the passwords differ: start again")
	}
	return first, nil
}

func ask(cmd *cobra.Command, prompt string) (string, error) {
	f, ok := cmd.InOrStdin().(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return "", fmt.Errorf("%w, and standard input is not a terminal: pass --password-file or set $%s", trust.ErrNoPassword, passwordEnv)
	}
	fmt.Fprint(cmd.ErrOrStderr(), prompt)
	word, err := term.ReadPassword(int(f.Fd()))
	fmt.Fprintln(cmd.ErrOrStderr())
	if err != nil {
		return "", fmt.Errorf("read password: %w", err)
	}
	if len(word) == 0 {
		return "", trust.ErrNoPassword
	}
	return string(word), nil
}
