package cli

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"gopkg.in/yaml.v3"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/server/api/adminapi"
)

func (a *client) newLogin() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "login",
		Short: "Save a server and an admin key for later commands",
		Long: `Check an admin key with the server, and save both with the CA pin in your configuration
folder, readable by you alone. The command prompts for the key, or reads it from
--api-key-file.`,
		Example: `  muster login --url https://fleet.example.com:8221 --ca-pin sha256:5f2a…`,
	}
	keyFile := cmd.Flags().String("api-key-file", "", "file with the admin key, - for standard input")
	var t serverAddress
	path := ""
	return running(a, cmd, func(cmd *cobra.Command, _ []string) (s adminapi.Session, err error) {
		t = a.server
		t.URL, t.CAPin = cmp.Or(t.URL, os.Getenv("MUSTER_URL")), cmp.Or(t.CAPin, os.Getenv("MUSTER_CA_PIN"))
		if t.URL == "" {
			return s, &usageError{errors.New("--url is missing: pass the address that `muster server` printed")}
		}
		if t.APIKey, err = readKey(cmd, *keyFile); err != nil {
			return s, err
		}
		if s, err = send[adminapi.Session](cmd.Context(), t, request{call: adminapi.GetSession.Call}); err != nil {
			return s, err
		}
		if path, err = contextFile(); err != nil {
			return s, err
		}
		data, err := yaml.Marshal(t)
		if err != nil {
			return s, err
		}
		d := disk.OS{}
		if err := d.MkdirAll("login", filepath.Dir(path), 0o700); err != nil {
			return s, err
		}
		return s, disk.WriteFile(d, "login", path, data, 0o600)
	}, func(w io.Writer, s adminapi.Session) {
		fmt.Fprintf(w, "Logged in to %s with the key %q, saved in %s\n", t.URL, s.Name, path)
	})
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
