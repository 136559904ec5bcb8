package download

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
)

// maxRedirects bounds the redirects of one request: a mirror and its storage need two.
const maxRedirects = 5

var hostForm = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?$`)

// CheckAllowed returns an error unless entry can be one of [Source.AllowHTTP].
func CheckAllowed(entry string) error {
	_, perr := netip.ParsePrefix(entry)
	_, aerr := netip.ParseAddr(entry)
	if perr != nil && aerr != nil && !hostForm.MatchString(entry) {
		return fmt.Errorf("%q: want a host name, an address, or a range such as 10.0.0.0/8", entry)
	}
	return nil
}

// CheckNamed returns an error unless the agent's server may name uri as a source. Whoever has
// stolen the server must neither read files of this host, nor reach services that its
// operators do not serve packages from, nor make it send a password.
func (s Source) CheckNamed(uri string) error {
	u, err := url.Parse(uri)
	switch {
	case err != nil:
		return errors.New("is no URL: want https://host/path") // err may hold a password
	case u.User != nil:
		return fmt.Errorf("%s: holds a user or a password: let the source serve packages without", DisplayName(u))
	case u.Scheme == schemeFile:
		return fmt.Errorf("%s: is a folder of the host: name it in upgrade.download.sources of its agent.yml", DisplayName(u))
	case u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		return fmt.Errorf("%s: want https://host/path", DisplayName(u))
	case u.Scheme == "http" && !SameOrigin(u, s.Origin) && !s.allowsHTTP(u):
		return fmt.Errorf("%s: is not https: serve it with https, or list %s in upgrade.download.allow_http of the host's agent.yml", DisplayName(u), u.Hostname())
	}
	return nil
}

// allowsHTTP reports whether the host's configuration allows http to u. A name is compared as
// it is, and not resolved: whoever answers for a name chooses its address.
func (s Source) allowsHTTP(u *url.URL) bool {
	name := strings.TrimSuffix(u.Hostname(), ".")
	addr, aerr := netip.ParseAddr(name)
	for _, entry := range s.AllowHTTP {
		if strings.EqualFold(entry, name) {
			return true
		}
		prefix, perr := netip.ParsePrefix(entry)
		allowed, err := netip.ParseAddr(entry)
		if aerr == nil && (perr == nil && prefix.Contains(addr.Unmap()) || err == nil && allowed == addr.Unmap()) {
			return true
		}
	}
	return false
}

// checkRedirect keeps redirects within the rules for sources: https leads to https only, and
// http to https, to where it came from, or to where the configuration allows it.
func (s Source) checkRedirect(req *http.Request, via []*http.Request) error {
	u, from := req.URL, via[len(via)-1].URL
	same := SameOrigin(u, from.Scheme+"://"+from.Host)
	switch {
	case len(via) > maxRedirects:
		return refused("redirects more than %d times: name the last place", maxRedirects)
	case u.User != nil && !same:
		return refused("redirects to %s with a user or a password: let that place serve packages without", DisplayName(u))
	case u.Scheme == "https" && u.Host != "":
		return nil
	case u.Scheme == "http" && from.Scheme == "https":
		return refused("redirects from https to %s: serve it with https", DisplayName(u))
	case u.Scheme == "http" && (same || s.allowsHTTP(u)):
		return nil
	}
	return refused("redirects to %s: serve it with https, or list its host in upgrade.download.allow_http of agent.yml", DisplayName(u))
}
