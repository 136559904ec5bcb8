package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"
	"gopkg.in/yaml.v3"

	"github.com/muster-fleet/muster/packaging/disk"
	"github.com/muster-fleet/muster/server/adminapi"
	"github.com/muster-fleet/muster/server/agentapi/capin"
)

// target is the server a command talks to: flags before environment before the
// file that `muster login` writes.
type target struct {
	URL    string `yaml:"url"`
	APIKey string `yaml:"api_key"`
	CAPin  string `yaml:"ca_pin,omitempty"`
}

func (t *target) flags(f *pflag.FlagSet) {
	f.StringVar(&t.URL, "url", "", "admin API of the server, https://host:8221 (or MUSTER_URL)")
	f.StringVar(&t.CAPin, "ca-pin", "", "fingerprint of the server's CA, sha256:… (or MUSTER_CA_PIN)")
}

// contextFile is where `muster login` keeps the target.
func contextFile() (string, error) {
	dir, err := os.UserConfigDir()
	return filepath.Join(dir, "muster", "context.yml"), err
}

func (t target) resolve() (target, error) {
	var saved target
	if path, err := contextFile(); err == nil {
		data, err := os.ReadFile(path)
		if err == nil {
			dec := yaml.NewDecoder(bytes.NewReader(data))
			dec.KnownFields(true)
			err = dec.Decode(&saved)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return t, fmt.Errorf("%s: %w: log in again with `muster login`", path, err)
		}
	}
	fill := func(v *string, env, file string) {
		if *v == "" {
			*v = os.Getenv(env)
		}
		if *v == "" {
			*v = file
		}
	}
	if other := firstOf(t.URL, os.Getenv("MUSTER_URL")); other != "" && strings.TrimRight(other, "/") != strings.TrimRight(saved.URL, "/") {
		saved = target{} // the saved key is for another server
	}
	fill(&t.URL, "MUSTER_URL", saved.URL)
	fill(&t.APIKey, "MUSTER_API_KEY", saved.APIKey)
	fill(&t.CAPin, "MUSTER_CA_PIN", saved.CAPin)
	if t.URL == "" || t.APIKey == "" {
		return t, errors.New("not logged in: run `muster login --url https://host:8221 --ca-pin sha256:…`, with the values `muster server` printed")
	}
	return t, nil
}

func firstOf(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}

// requestTimeout bounds a call of the command line; uploads and streams have no
// bound but Ctrl-C.
const requestTimeout = time.Minute

func (t target) client() (*http.Client, error) {
	u, err := url.Parse(t.URL)
	if err != nil || u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("--url is %q, want https://host:port", t.URL)
	}
	tr := http.DefaultTransport.(*http.Transport).Clone()
	if t.CAPin != "" {
		if tr.TLSClientConfig, err = capin.TLSConfig(t.CAPin, u.Hostname()); err != nil {
			return nil, fmt.Errorf("--ca-pin: %w", err)
		}
	}
	return &http.Client{Transport: tr}, nil
}

// do sends a request and returns the answer if it is a success.
func (t target) do(ctx context.Context, method, path string, header http.Header, body io.Reader, size int64) (*http.Response, error) {
	c, err := t.client()
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimRight(t.URL, "/")+path, body)
	if err != nil {
		return nil, err
	}
	for k, v := range header {
		req.Header[k] = v
	}
	if size > 0 {
		req.ContentLength = size
	}
	req.Header.Set("Authorization", "ApiKey "+t.APIKey)
	req.Header.Set("kbn-xsrf", "muster-cli")
	resp, err := c.Do(req)
	if err != nil {
		return nil, t.explain(err)
	}
	if resp.StatusCode < 300 {
		return resp, nil
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
	var e adminapi.Error
	if json.Unmarshal(b, &e) != nil || e.Message == "" {
		return nil, &refusal{status: resp.StatusCode, message: fmt.Sprintf("%s answered %s to %s %s: is it the admin API of a Muster server?", t.URL, resp.Status, method, path)}
	}
	return nil, &refusal{status: resp.StatusCode, message: e.Message, body: b}
}

// maxRefusal fits the difference of a fleet of 10,000 agents to a preview.
const maxRefusal = 4 << 20

// refusal is the server's own answer, in its words.
type refusal struct {
	status  int
	message string
	body    []byte
}

func (r *refusal) Error() string { return r.message }

func (t target) explain(err error) error {
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("nobody listens at %s: is the server running?", t.URL)
	case errors.Is(err, capin.ErrMismatch):
		return fmt.Errorf("%w: compare --ca-pin with what the server printed; if they differ, this is not your server", err)
	case strings.Contains(err.Error(), "certificate signed by unknown authority"):
		return fmt.Errorf("%w: pass --ca-pin with the fingerprint the server printed", err)
	}
	return err
}

// call does a JSON request against the resolved target.
func call[T any](ctx context.Context, a *app, method, path string, in any) (T, error) {
	var out T
	t, err := a.target.resolve()
	if err != nil {
		return out, err
	}
	return send[T](ctx, t, method, path, in)
}

func send[T any](ctx context.Context, t target, method, path string, in any) (T, error) {
	var out T
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	var body io.Reader
	header := http.Header{}
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return out, err
		}
		body = bytes.NewReader(b)
		header.Set("Content-Type", "application/json")
	}
	resp, err := t.do(ctx, method, path, header, body, 0)
	if err != nil {
		return out, err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil {
		return out, fmt.Errorf("%s %s: the answer is not what this version expects: %w", method, path, err)
	}
	return out, nil
}

func (a *app) newLogin() *cobra.Command {
	var keyFile string
	cmd := &cobra.Command{
		Use:   "login",
		Short: "Remember a server and an admin key",
		Long: `Checks the admin key against the server and keeps both, with the CA pin, in your
configuration folder, readable by you alone. The key is asked for, or read from
--api-key-file (- for standard input).`,
		Example: `  muster login --url https://fleet.example.com:8221 --ca-pin sha256:5f2a…`,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			t := a.target
			t.URL, t.CAPin = firstOf(t.URL, os.Getenv("MUSTER_URL")), firstOf(t.CAPin, os.Getenv("MUSTER_CA_PIN"))
			if t.URL == "" {
				return &usageError{errors.New("--url is missing: give the address `muster server` printed")}
			}
			key, err := readKey(cmd, keyFile)
			if err != nil {
				return err
			}
			t.APIKey = key
			s, err := send[adminapi.Session](cmd.Context(), t, http.MethodGet, "/api/v1/session", nil)
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
				fmt.Fprintf(w, "Logged in to %s with %q; kept in %s\n", t.URL, s.Name, path)
			})
		},
	}
	cmd.Flags().StringVar(&keyFile, "api-key-file", "", "file that holds the admin key, - for standard input")
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
