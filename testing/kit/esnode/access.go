package esnode

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
)

// Environment variables that name an Elasticsearch for tests.
const (
	urlVariable = "MUSTER_TEST_ELASTICSEARCH"
	keyVariable = "MUSTER_TEST_ELASTICSEARCH_API_KEY"
	caVariable  = "MUSTER_TEST_ELASTICSEARCH_CA"
)

// SharedVariable names the URL of a node that the tests of several packages share: that of [Shared] and
// [Keep], if the variables above name none. [Start] starts nodes nevertheless.
const SharedVariable = "MUSTER_TEST_SHARED_ELASTICSEARCH"

// Access is how a client reaches an Elasticsearch: its URLs, the client's credential, and
// the authority that the client trusts. At most one kind of credential is set.
type Access struct {
	URLs []string

	Username, Password string
	// APIKey stands after "ApiKey" in the header: base64 of id:key.
	APIKey string
	// ServiceToken stands after "Bearer".
	ServiceToken string

	// CA is the authority of the server's certificate in PEM; empty means those of the
	// system.
	CA []byte
	// Certificate and Key are the client's, in PEM.
	Certificate, Key []byte
}

// fromEnvironment returns the access that the environment variables describe. ok is false
// if the first is not set.
func fromEnvironment() (a Access, ok bool, err error) {
	address := os.Getenv(urlVariable)
	if address == "" {
		return a, false, nil
	}
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		// The wrapped error would contain the password.
		return a, true, errors.New(urlVariable + " is not an address like https://user:password@host:9200")
	}
	if u.User != nil {
		a.Username = u.User.Username()
		a.Password, _ = u.User.Password()
		u.User = nil
	}
	a.URLs = []string{strings.TrimSuffix(u.String(), "/")}
	if a.APIKey = os.Getenv(keyVariable); a.APIKey != "" && a.Username != "" {
		return a, true, fmt.Errorf("%s has a user name, and %s is set: give one of the two", urlVariable, keyVariable)
	}
	if file := os.Getenv(caVariable); file != "" {
		if a.CA, err = os.ReadFile(file); err != nil {
			return a, true, fmt.Errorf("%s: %w", caVariable, err)
		}
	}
	return a, true, nil
}

// authorization returns the value of the header, empty without a credential.
func (a Access) authorization() string {
	switch {
	case a.APIKey != "":
		return "ApiKey " + a.APIKey
	case a.ServiceToken != "":
		return "Bearer " + a.ServiceToken
	case a.Username != "":
		return "Basic " + base64.StdEncoding.EncodeToString([]byte(a.Username+":"+a.Password))
	}
	return ""
}

// transport returns a transport for a. The caller closes its connections.
func (a Access) transport() (*http.Transport, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if len(a.CA) > 0 {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(a.CA) {
			return nil, errors.New("the authority's PEM holds no certificate")
		}
	}
	if len(a.Certificate) > 0 {
		own, err := tls.X509KeyPair(a.Certificate, a.Key)
		if err != nil {
			return nil, fmt.Errorf("client certificate: %w", err)
		}
		config.Certificates = []tls.Certificate{own}
	}
	// The proxy passes on answers unchanged.
	return &http.Transport{TLSClientConfig: config, DisableCompression: true}, nil
}

// Do sends a request and returns the status and body of the answer. The body may be nil,
// bytes (JSON or NDJSON), or a value that is encoded as JSON. If a node does not answer,
// Do tries the next one, so a request may arrive twice.
func (a Access) Do(ctx context.Context, method, path string, body any) (status int, answer []byte, err error) {
	data, ok := body.([]byte)
	if !ok && body != nil {
		if data, err = json.Marshal(body); err != nil {
			return 0, nil, err
		}
	}
	transport, err := a.transport()
	if err != nil {
		return 0, nil, err
	}
	defer transport.CloseIdleConnections()
	var errs []error
	for _, base := range a.URLs {
		status, answer, err := a.do(ctx, transport, method, base+path, data)
		if err == nil {
			return status, answer, nil
		}
		errs = append(errs, err)
	}
	return 0, nil, errors.Join(errs...)
}

func (a Access) do(ctx context.Context, transport *http.Transport, method, address string, body []byte) (int, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	if len(body) > 0 {
		req.Header.Set("Content-Type", "application/json")
	}
	if value := a.authorization(); value != "" {
		req.Header.Set("Authorization", value)
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return 0, nil, fmt.Errorf("%s %s: %w", method, address, err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	return resp.StatusCode, answer, err
}
