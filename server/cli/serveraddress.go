package cli

import (
	"bytes"
	"cmp"
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
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	"gopkg.in/yaml.v3"

	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/server/wire/agentapi/capin"
)

// serverAddress is the server that a subcommand talks to. Flags override the environment, which
// overrides the file that `muster login` writes.
type serverAddress struct {
	URL    string `yaml:"url"`
	APIKey string `yaml:"api_key"`
	CAPin  string `yaml:"ca_pin,omitempty"`
	// Why is the operator's reason for a change.
	Why string `yaml:"-"`
	// reused has the command's connections; nil makes one for each request.
	reused *connections
}

// connections are those of one command, which may send many requests: to wait, it asks every
// second or two.
type connections struct {
	mu   sync.Mutex
	http *http.Client // nil before the first request
}

// close ends the connections that no request uses. A program's end does it too; a server in the same
// process would wait for them.
func (c *connections) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.http != nil {
		c.http.CloseIdleConnections()
	}
}

func (t *serverAddress) flags(f *pflag.FlagSet) {
	f.StringVar(&t.URL, "url", "", "URL of the server's admin API, https://host:8221 (or MUSTER_URL)")
	f.StringVar(&t.CAPin, "ca-pin", "", "fingerprint of the server's CA, sha256:… (or MUSTER_CA_PIN)")
	f.StringVar(&t.Why, "why", "", "reason for a change, which the audit trail keeps")
}

// contextFile returns the path of the file that `muster login` writes.
func contextFile() (string, error) {
	dir, err := os.UserConfigDir()
	return filepath.Join(dir, "muster", "context.yml"), err
}

func (t serverAddress) resolve() (_ serverAddress, err error) {
	defer unusable(&err)
	var saved serverAddress
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
	if other := cmp.Or(t.URL, os.Getenv("MUSTER_URL")); other != "" && strings.TrimRight(other, "/") != strings.TrimRight(saved.URL, "/") {
		saved = serverAddress{} // the saved key is for another server
	}
	t.URL = cmp.Or(t.URL, os.Getenv("MUSTER_URL"), saved.URL)
	t.APIKey = cmp.Or(t.APIKey, os.Getenv("MUSTER_API_KEY"), saved.APIKey)
	t.CAPin = cmp.Or(t.CAPin, os.Getenv("MUSTER_CA_PIN"), saved.CAPin)
	if t.URL == "" || t.APIKey == "" {
		return t, errors.New("not logged in: run `muster login --url https://host:8221 --ca-pin sha256:…`, with the values `muster server` printed")
	}
	return t, nil
}

// errServer is an error of what names the server, which no answer will mend.
type errServer struct{ error }

func (e errServer) Unwrap() error { return e.error }

func unusable(err *error) {
	if *err != nil {
		*err = errServer{*err}
	}
}

// requestTimeout bounds a JSON request. Uploads and streams end only with Ctrl-C.
const requestTimeout = time.Minute

func (t serverAddress) client() (c *http.Client, err error) {
	defer unusable(&err)
	u, err := url.Parse(t.URL)
	if err != nil || u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("--url is %q, want https://host:port", t.URL)
	}
	if t.reused != nil {
		t.reused.mu.Lock()
		defer t.reused.mu.Unlock()
		if t.reused.http != nil {
			return t.reused.http, nil
		}
		defer func() { t.reused.http = c }()
	}
	tr := http.DefaultTransport.(*http.Transport).Clone()
	if t.CAPin != "" {
		if tr.TLSClientConfig, err = capin.TLSConfig(t.CAPin, u.Hostname()); err != nil {
			return nil, fmt.Errorf("--ca-pin: %w", err)
		}
	}
	return &http.Client{Transport: tr}, nil
}

// isAgentsPort reports whether the server address is the port for agents: only that one answers
// a status request without a key.
func (t serverAddress) isAgentsPort(ctx context.Context, c *http.Client) bool {
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

// maxRefusal bounds an error response. The largest lists how a fleet of 10,000 agents
// differs from a preview.
const maxRefusal = 4 << 20

// refusal is an error response of the server.
type refusal struct {
	status  int
	field   string // the invalid field of the request, such as plan.select, or empty
	message string
	body    []byte
}

func (r *refusal) Error() string {
	if r.field == "" {
		return r.message
	}
	return r.field + ": " + r.message
}

// isRefusal reports whether err is a refusal with one of these statuses.
func isRefusal(err error, statuses ...int) bool {
	var refused *refusal
	return errors.As(err, &refused) && slices.Contains(statuses, refused.status)
}

// requestField matches how the API names an invalid field of a request.
var requestField = regexp.MustCompile(`(?s)^\[request (?:body|query|params)\.?([^\]]*?(?:\[\d+\][^\]]*?)*)\]: (.*)$`)

// furtherField matches how a line about another field begins.
var furtherField = regexp.MustCompile(`(?m)^\[request (?:body|query|params)\.?([^\]]*?(?:\[\d+\][^\]]*?)*)\]: `)

// refuse makes a refusal, without the prefixes and Kibana's words that the API writes for
// its own clients.
func refuse(status int, message string, body []byte) *refusal {
	r := &refusal{status: status, message: message, body: body}
	if m := requestField.FindStringSubmatch(message); m != nil {
		r.field, r.message = m[1], furtherField.ReplaceAllString(m[2], "$1: ")
	}
	r.message = strings.Replace(r.message, "Kuery is malformed: ", "the query cannot be parsed: ", 1)
	return r
}

// explain replaces an error of the network or of TLS by one that says what to do.
func (t serverAddress) explain(err error) error {
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
		return fmt.Errorf("nothing listens at %s: is the server running?", t.URL)
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
		return fmt.Errorf("%s did not answer within %s: try again, and see the server's log if that does not help", t.URL, requestTimeout)
	case errors.As(err, &network) && network.Timeout():
		return fmt.Errorf("%s cannot be reached: the connection timed out: check the address and firewalls", t.URL)
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
