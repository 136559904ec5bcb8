package manifest

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// Bounds of a check.
const (
	// MaxChecks bounds the load of the checks, each of which runs once an interval.
	MaxChecks = 20
	// MaxCheckTimeout keeps a slow check from delaying the verdict.
	MaxCheckTimeout = time.Minute
	// DefaultCheckTimeout is long for a local request.
	DefaultCheckTimeout = 5 * time.Second
	// MaxCheckName keeps names short in messages.
	MaxCheckName = 64
	// DefaultCheckThreshold is the number of consecutive failures after which a
	// check has failed: one may be chance, two a restart.
	DefaultCheckThreshold = 3
)

// Check is a health check that a package defines. The watcher runs it while it
// observes that version. Exactly one of Exec, HTTP and TCP is set.
type Check struct {
	Name string `yaml:"name" json:"name"`
	// Exec is a program and its arguments, run without a shell in the versioned
	// home; exit status 0 passes. A relative path is relative to the
	// versioned home.
	Exec []string `yaml:"exec,omitempty" json:"exec,omitempty"`
	// HTTP is a URL on this host that passes with a 2xx answer. Redirects are
	// followed to the same host only. Certificates are verified except on connections
	// to loopback addresses.
	HTTP string `yaml:"http,omitempty" json:"http,omitempty"`
	// TCP is host:port that passes when it accepts a connection.
	TCP string `yaml:"tcp,omitempty" json:"tcp,omitempty"`
	// Timeout of one attempt; 0 means DefaultCheckTimeout.
	Timeout time.Duration `yaml:"timeout,omitempty" json:"timeout,omitempty"`
	// Threshold is how many attempts in a row must fail; 0 means
	// DefaultCheckThreshold.
	Threshold int `yaml:"threshold,omitempty" json:"threshold,omitempty"`
}

// WithDefaults returns the check with its timeout and threshold filled in.
func (c Check) WithDefaults() Check {
	c.Timeout = cmp.Or(c.Timeout, DefaultCheckTimeout)
	c.Threshold = cmp.Or(c.Threshold, DefaultCheckThreshold)
	return c
}

// Validate returns an error if the check is invalid.
func (c Check) Validate() error {
	kinds := 0
	for _, set := range []bool{len(c.Exec) > 0, c.HTTP != "", c.TCP != ""} {
		if set {
			kinds++
		}
	}
	switch {
	case c.Name == "":
		return errors.New("name is missing")
	case len(c.Name) > MaxCheckName:
		return fmt.Errorf("name has %d characters, want at most %d", len(c.Name), MaxCheckName)
	case kinds != 1:
		return errors.New("wants exactly one of exec, http and tcp")
	case c.Timeout < 0 || c.Timeout > MaxCheckTimeout:
		return fmt.Errorf("timeout is %s, want at most %s", c.Timeout, MaxCheckTimeout)
	case c.Threshold < 0:
		return fmt.Errorf("threshold is %d, want 1 or more", c.Threshold)
	}
	switch {
	case c.HTTP != "":
		if !isWebURL(c.HTTP) {
			return fmt.Errorf("http is %q, want a URL such as http://127.0.0.1:8080/health", c.HTTP)
		}
	case c.TCP != "":
		if !isHostPort(c.TCP) {
			return fmt.Errorf("tcp is %q, want host:port such as 127.0.0.1:8080", c.TCP)
		}
	default:
		return validProgram(c.Exec[0])
	}
	return nil
}

// validProgram returns an error unless the program of a check or a hook may be called so.
func validProgram(name string) error {
	if name == "" || !filepath.IsAbs(name) && !localPath(name) {
		return fmt.Errorf("exec is %q, want an absolute path, or one inside the package's home", name)
	}
	return nil
}

// isWebURL, like isHostPort, only catches an author's mistakes: the watcher reports
// the rest when it runs the check. Neither uses package net, which packages that only
// read manifests should not link.
func isWebURL(s string) bool {
	rest, plain := strings.CutPrefix(s, "http://")
	if !plain {
		var secure bool
		if rest, secure = strings.CutPrefix(s, "https://"); !secure {
			return false
		}
	}
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		rest = rest[:i]
	}
	// A password in the URL would appear in messages.
	return rest != "" && !strings.Contains(rest, "@") && !strings.ContainsFunc(s, func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r)
	})
}

func isHostPort(s string) bool {
	i := strings.LastIndexByte(s, ':')
	if i < 0 {
		return false
	}
	host := s[:i]
	if strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]") {
		host = ""
	}
	port, err := strconv.ParseUint(s[i+1:], 10, 16)
	return err == nil && port > 0 && !strings.ContainsAny(host, "[]:/ ")
}
