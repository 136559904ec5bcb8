package cli

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"
	"gopkg.in/yaml.v3"

	"github.com/muster-fleet/muster/packaging/disk"
	"github.com/muster-fleet/muster/server/adminapi"
	"github.com/muster-fleet/muster/server/agentapi"
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
			if dec.Decode(&saved) != nil {
				return t, fmt.Errorf("%s is not what `muster login` writes: log in again with it", path)
			}
		} else if !errors.Is(err, fs.ErrNotExist) {
			return t, fmt.Errorf("%w: log in again with `muster login`", err)
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
	if (resp.StatusCode == http.StatusNotFound || resp.StatusCode == http.StatusMethodNotAllowed) && t.isAgentsPort(ctx, c) {
		return nil, fmt.Errorf("%s is the port for agents: pass the one of the admin API, 8221 unless configured otherwise, as --url", t.URL)
	}
	var e adminapi.Error
	if json.Unmarshal(b, &e) != nil || e.Message == "" {
		return nil, &refusal{status: resp.StatusCode, message: fmt.Sprintf("%s answered %s to %s %s: is it the admin API of a Muster server?", t.URL, resp.Status, method, path)}
	}
	return nil, refuse(resp.StatusCode, e.Message, b)
}

// isAgentsPort asks for the status that an agents' port, and no admin API, gives
// without a key.
func (t target) isAgentsPort(ctx context.Context, c *http.Client) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimRight(t.URL, "/")+agentapi.PathStatus, nil)
	if err != nil {
		return false
	}
	resp, err := c.Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	var s agentapi.Status
	return json.NewDecoder(io.LimitReader(resp.Body, maxRefusal)).Decode(&s) == nil && s.Status != ""
}

// maxRefusal fits the difference of a fleet of 10,000 agents to a preview.
const maxRefusal = 4 << 20

// refusal is an error that the server has answered.
type refusal struct {
	status  int
	field   string // of the request, such as plan.select; empty if none is at fault
	message string
	body    []byte
}

func (r *refusal) Error() string {
	if r.field == "" {
		return r.message
	}
	return r.field + ": " + r.message
}

// requestField is how the API names a field of a request.
var requestField = regexp.MustCompile(`(?s)^\[request (?:body|query|params)\.?([^\]]*?(?:\[\d+\][^\]]*?)*)\]: (.*)$`)

// refuse says what the API has answered in the words of the command line.
func refuse(status int, message string, body []byte) *refusal {
	r := &refusal{status: status, message: message, body: body}
	if m := requestField.FindStringSubmatch(message); m != nil {
		r.field, r.message = m[1], m[2]
	}
	r.message = strings.Replace(r.message, "Kuery is malformed: ", "the query cannot be read: ", 1)
	return r
}

// explain says what keeps a request from being answered, and what to do.
func (t target) explain(err error) error {
	var (
		unknown  x509.UnknownAuthorityError
		name     x509.HostnameError
		invalid  x509.CertificateInvalidError
		notTLS   tls.RecordHeaderError
		notFound *net.DNSError
		network  net.Error
	)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("nobody listens at %s: is the server running?", t.URL)
	case errors.Is(err, capin.ErrMismatch):
		return fmt.Errorf("the certificate of %s does not come from the pinned CA: compare --ca-pin with what the server printed; if they differ, this is not your server", t.URL)
	case errors.As(err, &unknown):
		return fmt.Errorf("this machine does not know the CA of %s: pass --ca-pin with the fingerprint the server printed", t.URL)
	case errors.As(err, &name):
		return fmt.Errorf("the certificate of %s is for %s, not for %s: use one of these names in --url, or add the name to tls.names of the server's configuration",
			t.URL, certificateNames(name.Certificate), name.Host)
	case errors.As(err, &invalid):
		return fmt.Errorf("the certificate of %s is not valid now: check the clock of this machine, and the server's certificate", t.URL)
	case errors.As(err, &notTLS):
		return fmt.Errorf("%s does not speak TLS: check the port in --url", t.URL)
	case errors.As(err, &notFound):
		return fmt.Errorf("no host has the name %s: check --url", notFound.Name)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s did not answer within %s: try again; if it lasts, see the server's log", t.URL, requestTimeout)
	case errors.As(err, &network) && network.Timeout():
		return fmt.Errorf("%s cannot be reached, no answer came in time: check the address, and firewalls between", t.URL)
	}
	return err
}

func certificateNames(c *x509.Certificate) string {
	names := append([]string{}, c.DNSNames...)
	for _, ip := range c.IPAddresses {
		names = append(names, ip.String())
	}
	return strings.Join(names, ", ")
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
	if err := json.NewDecoder(resp.Body).Decode(&out); errors.Is(err, context.DeadlineExceeded) {
		return out, t.explain(err)
	} else if err != nil {
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
