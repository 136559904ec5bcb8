package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"gopkg.in/yaml.v3"

	"github.com/muster-fleet/muster/packaging/disk"
	"github.com/muster-fleet/muster/server/api/adminapi"
)

func (a *client) newLogin() *cobra.Command {
	var keyFile string
	cmd := &cobra.Command{
		Use:   "login",
		Short: "Save a server and an admin key for later commands",
		Long: `Check an admin key with the server, and save both with the CA pin in your configuration
folder, readable by you alone. The command prompts for the key, or reads it from
--api-key-file.`,
		Example: `  muster login --url https://fleet.example.com:8221 --ca-pin sha256:5f2a…`,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			t := a.server
			t.URL, t.CAPin = firstOf(t.URL, os.Getenv("MUSTER_URL")), firstOf(t.CAPin, os.Getenv("MUSTER_CA_PIN"))
			if t.URL == "" {
				return &usageError{errors.New("--url is missing: pass the address that `muster server` printed")}
			}
			key, err := readKey(cmd, keyFile)
			if err != nil {
				return err
			}
			t.APIKey = key
			s, err := send[adminapi.Session](cmd.Context(), t, request{call: adminapi.GetSession.Call})
			if err != nil {
				return err
			}
			path, err := contextFile()
			if err != nil {
				return err
			}
			data, err := yaml.Marshal(t)
			if err != nil {
				return err
			}
			d := disk.OS{}
			if err := d.MkdirAll("login", filepath.Dir(path), 0o700); err != nil {
				return err
			}
			if err := disk.WriteFile(d, "login", path, data, 0o600); err != nil {
				return err
			}
			return a.show(cmd.OutOrStdout(), s, func(w io.Writer) {
				fmt.Fprintf(w, "Logged in to %s with the key %q, saved in %s\n", t.URL, s.Name, path)
			})
		},
	}
	cmd.Flags().StringVar(&keyFile, "api-key-file", "", "file with the admin key, - for standard input")
	return cmd
}

func readKey(cmd *cobra.Command, file string) (string, error) {
	switch {
	case file == "" && os.Getenv("MUSTER_API_KEY") != "":
		return os.Getenv("MUSTER_API_KEY"), nil
	case file == "" && term.IsTerminal(int(os.Stdin.Fd())):
		fmt.Fprint(cmd.ErrOrStderr(), "Admin key: ")
		b, err := term.ReadPassword(int(os.Stdin.Fd()))
		fmt.Fprintln(cmd.ErrOrStderr())
		return strings.TrimSpace(string(b)), err
	case file == "" || file == "-":
		line, err := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return "", err
		}
		if strings.TrimSpace(line) == "" {
			return "", errors.New("no admin key on standard input: pass --api-key-file, or set MUSTER_API_KEY")
		}
		return strings.TrimSpace(line), nil
	}
	b, err := os.ReadFile(file)
	return strings.TrimSpace(string(b)), err
}
