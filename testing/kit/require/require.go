// Package require checks what a test needs of the machine it runs on. A test whose
// requirement is missing is skipped with the reason; with CI=true it fails, since CI must
// run all tests. testing/suites/architecture ensures that tests skip in no other way.
package require

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
)

// ciVariable is the environment variable that CI services set to "true".
const ciVariable = "CI"

// Program requires a program, and returns its path.
func Program(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		miss(t, "the program "+name+" is not installed", "`go tool mage setup` installs it, or says how to")
	}
	return path
}

// Path requires a file or folder; remedy says how to create it.
func Path(t testing.TB, path, remedy string) {
	t.Helper()
	if _, err := os.Stat(path); err != nil {
		miss(t, err.Error(), remedy)
	}
}

// Made requires that preparing something has succeeded: err is the result, and remedy
// says what to do if it is not nil.
func Made(t testing.TB, err error, remedy string) {
	t.Helper()
	if err != nil {
		miss(t, err.Error(), remedy)
	}
}

// Root requires the rights of root, which a service or another user's files need.
func Root(t testing.TB) {
	t.Helper()
	// Windows has no such user: its Geteuid is -1.
	if os.Geteuid() != 0 {
		miss(t, "this test needs root's rights", "run it as root")
	}
}

// System requires one of the operating systems, named as in GOOS. It skips even with
// CI=true, since there is no remedy, and what differs by system has a test for each.
func System(t testing.TB, names ...string) {
	t.Helper()
	for _, name := range names {
		if runtime.GOOS == name {
			return
		}
	}
	t.Skipf("skipped: this test is for %s, and this is %s", strings.Join(names, " and "), runtime.GOOS)
}

// Own requires that the test has started a service itself and may damage it. named is the
// service named by the environment, or empty. It skips even with CI=true, since naming a
// service is a deliberate choice.
func Own(t testing.TB, named string) {
	t.Helper()
	if named != "" {
		t.Skipf("skipped: this test harms what it runs on, and must not harm %s: run it without the variable", named)
	}
}

// Time requires that slow tests are enabled, that is, -short is not set.
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
