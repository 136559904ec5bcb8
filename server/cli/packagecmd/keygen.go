package packagecmd

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/muster-fleet/muster/packaging/disk"
	"github.com/muster-fleet/muster/packaging/trust"
)

// passwordEnv is the environment variable with the password of a private key, used if
// --password-file is not given.
const passwordEnv = "MUSTER_KEY_PASSWORD"

func newKeygen() *cobra.Command {
	var keyFile string
	var noPassword bool
	var password passwordSource
	cmd := &cobra.Command{
		Use:   "keygen --key FILE",
		Short: "Generate a key pair for signing packages",
		Long: `Write a private key, encrypted with a password, and beside it the public key with the
extension .pub. Keep the private key away from servers and hosts: whoever has it and the
password can make every host that trusts it run any program.`,
		Example: `  muster package keygen --key release.key
  muster package keygen --key release.key --password-file password.txt`,
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runKeygen(cmd, keyFile, noPassword, password)
		},
	}
	cmd.Flags().StringVar(&keyFile, "key", "muster-release.key", "private key file to write")
	cmd.Flags().BoolVar(&noPassword, "no-password", false, "do not encrypt the private key; for tests and demos")
	password.addFlag(cmd)
	return cmd
}

func runKeygen(cmd *cobra.Command, keyFile string, noPassword bool, password passwordSource) error {
	pubFile := strings.TrimSuffix(keyFile, ".key") + ".pub"
	for _, file := range []string{keyFile, pubFile} {
		if _, err := os.Lstat(file); err == nil {
			return hinted(fmt.Errorf("%s exists: keys are never overwritten", file), "another name with --key, or remove the file first")
		}
	}
	if noPassword && password.file != "" {
		return errors.New("--no-password and --password-file exclude each other: pass one of them")
	}
	pub, priv, err := trust.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	text, err := encodeNewKey(cmd, priv, noPassword, password)
	if err != nil {
		return err
	}
	d := disk.OS{}
	if err := disk.WriteFile(d, "write private key", keyFile, text, 0o600); err != nil {
		return err
	}
	if err := disk.WriteFile(d, "write public key", pubFile, pub.File(), 0o644); err != nil {
		return errors.Join(err, d.Remove("write public key", keyFile))
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "private key %s\npublic key  %s\n\nHosts trust it with:\n  muster-agent enroll --trust-key %s …\n", keyFile, pubFile, pub)
	return err
}

func encodeNewKey(cmd *cobra.Command, key trust.PrivateKey, noPassword bool, password passwordSource) ([]byte, error) {
	if noPassword {
		return trust.UnsafePlainPrivateKey(key)
	}
	word, err := password.readNew(cmd)
	if errors.Is(err, trust.ErrNoPassword) {
		return nil, fmt.Errorf("%w, or --no-password for tests and demos", err)
	}
	if err != nil {
		return nil, err
	}
	return trust.EncryptPrivateKey(word, key)
}

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
