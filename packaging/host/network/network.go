// Package network holds how the programs of a host reach servers and sources of packages: through which
// proxy, and which authorities they trust beside those of the host. A service manager gives a service no
// environment of a shell, so agent.yml has these settings, and the agent gives them to its watcher.
package network

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/http/httpproxy"
)

// Settings are the settings of one host. The zero value uses the environment's proxy and the host's
// authorities.
type Settings struct {
	// Proxy is the URL of the proxy; if it is empty the environment names it, with NO_PROXY.
	Proxy string `json:"proxy,omitempty" yaml:"proxy"`
	// NoProxy lists what is reached without the proxy, each as in the variable NO_PROXY.
	NoProxy []string `json:"no_proxy,omitempty" yaml:"no_proxy"`
	// CAPEM holds certificates of authorities that are trusted beside the host's own.
	CAPEM string `json:"ca_pem,omitempty" yaml:"ca_pem"`
}

// schemes are those of proxies that net/http can use.
var schemes = []string{"http", "https", "socks5"}

// Problems returns what is wrong with the settings, by key.
func (s Settings) Problems() map[string]string {
	p := map[string]string{}
	if s.Proxy != "" {
		u, err := url.Parse(s.Proxy)
		if err != nil || u.Host == "" || !slices.Contains(schemes, u.Scheme) {
			p["proxy"] = "want http://host:port, https://host:port or socks5://host:port" // it may hold a password
		}
	} else if len(s.NoProxy) > 0 {
		p["no_proxy"] = "is used with network.proxy only: name the proxy too"
	}
	for _, entry := range s.NoProxy {
		if entry == "" || strings.ContainsAny(entry, ", ") || strings.Contains(entry, "://") {
			p["no_proxy"] = fmt.Sprintf("holds %q, want a name, .suffix, address or range of addresses", entry)
		}
	}
	if _, err := s.Roots(); err != nil {
		p["ca_pem"] = err.Error()
	}
	return p
}

// Equal reports whether both are the same settings.
func (s Settings) Equal(o Settings) bool {
	return s.Proxy == o.Proxy && s.CAPEM == o.CAPEM && slices.Equal(s.NoProxy, o.NoProxy)
}

// ProxyFor returns the proxy for a request, or nil, as a field of [http.Transport]. Like the environment's
// it is not used for loopback addresses.
func (s Settings) ProxyFor(r *http.Request) (*url.URL, error) {
	if s.Proxy == "" {
		return http.ProxyFromEnvironment(r)
	}
	c := httpproxy.Config{HTTPProxy: s.Proxy, HTTPSProxy: s.Proxy, NoProxy: strings.Join(s.NoProxy, ",")}
	return c.ProxyFunc()(r.URL)
}

// Roots returns the authorities to trust where none is pinned; nil means those of the host.
func (s Settings) Roots() (*x509.CertPool, error) {
	if s.CAPEM == "" {
		return nil, nil
	}
	roots, err := x509.SystemCertPool()
	if err != nil { // a host may have none
		roots = x509.NewCertPool()
	}
	if !roots.AppendCertsFromPEM([]byte(s.CAPEM)) {
		return nil, errors.New("holds no certificate in PEM form")
	}
	return roots, nil
}

// Transport returns a transport to servers whose authority is not pinned.
func (s Settings) Transport() (*http.Transport, error) {
	t := http.DefaultTransport.(*http.Transport).Clone()
	roots, err := s.Roots()
	if err != nil {
		return nil, fmt.Errorf("ca_pem: %w", err)
	}
	t.Proxy = s.ProxyFor
	if roots != nil {
		t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}
	}
	return t, nil
}
