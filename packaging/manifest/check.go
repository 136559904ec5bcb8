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
	// MaxChecks: each runs once an interval beside what it checks.
	MaxChecks = 20
	// MaxCheckTimeout keeps one slow check from holding up the verdict.
	MaxCheckTimeout = time.Minute
	// DefaultCheckTimeout: a local question is answered in less, or not at all.
	DefaultCheckTimeout = 5 * time.Second
	// MaxCheckName: it stands in reasons and in what an operator reads.
	MaxCheckName = 64
	// DefaultCheckThreshold is failures in a row before a check counts as
	// failed: one is bad luck, two may be a restart.
	DefaultCheckThreshold = 3
)

// Check is a question of the package's own to the version that runs: the watcher
// asks it while it judges that version. Exactly one of Exec, HTTP and TCP is set.
type Check struct {
	Name string `yaml:"name" json:"name"`
	// Exec is a program and its arguments, run without a shell in the versioned
	// home; exit status 0 passes. A path that is not absolute is taken from the
	// versioned home.
	Exec []string `yaml:"exec,omitempty" json:"exec,omitempty"`
	// HTTP is a URL on this host that passes with a 2xx answer. Redirects are
	// followed to the same host only; who answers to https is not verified.
	HTTP string `yaml:"http,omitempty" json:"http,omitempty"`
	// TCP is host:port that passes when it takes a connection.
	TCP string `yaml:"tcp,omitempty" json:"tcp,omitempty"`
	// Timeout of one try; 0 means DefaultCheckTimeout.
	Timeout time.Duration `yaml:"timeout,omitempty" json:"timeout,omitempty"`
	// Threshold is how many tries in a row must fail; 0 means
	// DefaultCheckThreshold.
	Threshold int `yaml:"threshold,omitempty" json:"threshold,omitempty"`
}

// WithDefaults returns the check with its timeout and threshold filled in.
func (c Check) WithDefaults() Check {
	c.Timeout = cmp.Or(c.Timeout, DefaultCheckTimeout)
	c.Threshold = cmp.Or(c.Threshold, DefaultCheckThreshold)
	return c
}

// Validate says what is wrong with a check, or nil.
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
	case c.Exec[0] == "" || (!filepath.IsAbs(c.Exec[0]) && !localPath(c.Exec[0])):
		return fmt.Errorf("exec is %q, want an absolute path, or one inside the package's home", c.Exec[0])
	}
	return nil
}

// isWebURL and isHostPort look no further than an author's slips go: what asks the
// check says the rest. Package net would bring the network to all who only read
// manifests.
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
	// Who asks with a password would have it quoted in reasons.
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
