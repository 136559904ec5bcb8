// Package require says what a test needs of the machine it runs on. A test that
// does not get it is skipped with the reason; with CI=true it fails, for there
// nothing may go untested. Tests call it; testing/tidy keeps them from skipping
// in any other way.
package require

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
)

// ciVariable is what build services set to "true".
const ciVariable = "CI"

// Program returns the path of a program that the machine must have.
func Program(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		miss(t, "the program "+name+" is not installed", "`go tool mage setup` installs it, or says how to")
	}
	return path
}

// Path demands a file or folder that something else makes; remedy says what.
func Path(t testing.TB, path, remedy string) {
	t.Helper()
	if _, err := os.Stat(path); err != nil {
		miss(t, err.Error(), remedy)
	}
}

// Made demands something that had to be fetched or made first; err says why it
// was not, remedy what to do.
func Made(t testing.TB, err error, remedy string) {
	t.Helper()
	if err != nil {
		miss(t, err.Error(), remedy)
	}
}

// Root demands the rights of root, which a service or another user's files need.
func Root(t testing.TB) {
	t.Helper()
	// Windows has no such user: its Geteuid is -1.
	if os.Geteuid() != 0 {
		miss(t, "this test needs root's rights", "run it as root")
	}
}

// System demands one of the operating systems named as in GOOS. It skips even
// with CI=true: no remedy makes this machine another, and what differs between
// systems has a test for each.
func System(t testing.TB, names ...string) {
	t.Helper()
	for _, name := range names {
		if runtime.GOOS == name {
			return
		}
	}
	t.Skipf("skipped: this test is for %s, and this is %s", strings.Join(names, " and "), runtime.GOOS)
}

// Own demands that a service is the test's own to harm, where named is the one that
// the environment names; empty: none. It skips even with CI=true: who names one has
// chosen what is tested there.
func Own(t testing.TB, named string) {
	t.Helper()
	if named != "" {
		t.Skipf("skipped: this test harms what it runs on, and must not harm %s: run it without the variable", named)
	}
}

// Time demands that slow tests are wanted: that -short was not given.
func Time(t testing.TB, what string) {
	t.Helper()
	if testing.Short() {
		miss(t, "with -short, slow tests are left out, and this one "+what, "run it without -short")
	}
}

func miss(t testing.TB, reason, remedy string) {
	t.Helper()
	if os.Getenv(ciVariable) == "true" {
		t.Fatalf("%s, and with CI=true nothing may be skipped: %s", reason, remedy)
	}
	t.Skipf("skipped: %s: %s", reason, remedy)
}
