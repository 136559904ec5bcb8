package download

import (
	"net/http"
	"net/url"
	"testing"
)

func TestSourcesThatAServerMayName(t *testing.T) {
	s := Source{
		Origin:    "http://127.0.0.1:8220",
		AllowHTTP: []string{"mirror.local", "10.1.2.3", "192.168.0.0/16", "fd00::/8"},
	}
	for uri, want := range map[string]bool{
		"https://x/packages":          true,
		"HTTPS://x":                   true,
		"http://127.0.0.1:8220/a":     true, // the agent's own server
		"http://127.0.0.1:8221/a":     false,
		"http://MIRROR.local/p":       true,
		"http://mirror.local./p":      true,
		"http://mirror.local.evil/p":  false,
		"http://evil.mirror.local/p":  false,
		"http://10.1.2.3:99/p":        true,
		"http://10.1.2.30/p":          false,
		"http://192.168.255.1/p":      true,
		"http://[::ffff:10.1.2.3]/p":  true,
		"http://[fd00::1]/p":          true,
		"http://169.254.169.254/":     false,
		"http://x":                    false,
		"http://10.1.2.3@x/p":         false,
		"https://user:secret@x/p":     false,
		"https://user@x/p":            false,
		"https:x":                     false,
		"https:///p":                  false,
		"//x/p":                       false,
		"x/p":                         false,
		"":                            false,
		"file:///etc":                 false,
		"file://server/share":         false,
		"FILE:///etc":                 false,
		`\\server\share`:              false,
		"ftp://x/p":                   false,
		"http://mirror.local:secret@": false,
		"https://x/\x00":              false,
	} {
		if err := s.CheckNamed(uri); (err == nil) != want {
			t.Errorf("CheckNamed(%q) = %v", uri, err)
		}
	}
}

func TestRedirectsStayWithinTheRulesForSources(t *testing.T) {
	s := Source{AllowHTTP: []string{"mirror.local"}}
	for _, c := range []struct {
		from, to string
		want     bool
	}{
		{"https://a/p", "https://b/p", true},
		{"https://a/p", "http://a/p", false},
		{"https://a/p", "http://mirror.local/p", false},
		{"https://a/p", "file:///etc/passwd", false},
		{"https://a/p", "https://user:secret@b/p", false},
		{"https://user:secret@a/p", "https://user:secret@a/q", true}, // as a relative one becomes
		{"http://a/p", "https://b/p", true},
		{"http://a/p", "http://a/q", true},
		{"http://a/p", "http://a:81/q", false},
		{"http://a/p", "http://b/p", false},
		{"http://a/p", "http://mirror.local/p", true},
		{"http://mirror.local/p", "http://169.254.169.254/", false},
	} {
		err := s.checkRedirect(request(t, c.to), []*http.Request{request(t, c.from)})
		if (err == nil) != c.want {
			t.Errorf("from %s to %s: %v", c.from, c.to, err)
		}
	}
	from := request(t, "https://a/p")
	if err := s.checkRedirect(from, []*http.Request{from, from, from, from, from, from}); err == nil {
		t.Error("redirects have no bound")
	}
}

func request(t *testing.T, to string) *http.Request {
	t.Helper()
	u, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	return &http.Request{URL: u}
}

func TestNetworkPathsAreRefused(t *testing.T) {
	for raw, want := range map[string]bool{
		"file:///srv/p":                      true,
		"file://localhost/srv/p":             true,
		"file:///C:/p":                       true,
		"file://server/share/p":              false,
		"file:////server/share/p":            false,
		"file://///server/share/p":           false,
		"file:///%5C%5Cserver/share/p":       false,
		"file:///%5c/server/share/p":         false,
		"file://localhost/%5C%5Cserver/a":    false,
		"file:///%5C%5C%3F%5CUNC%5Cserver/a": false,
	} {
		u, err := url.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := filePath(&source{url: u}); (err == nil) != want {
			t.Errorf("%s: %v", raw, err)
		}
	}
}
