//go:build !linux && !darwin

package process

import (
	"fmt"
	goruntime "runtime"

	"github.com/muster-fleet/muster/agent/runtime"
)

func supported() error {
	return fmt.Errorf("runtime process: %w: it is for Linux and macOS, and this is %s", runtime.ErrUnavailable, goruntime.GOOS)
}

func (a *Adapter) spawn(*runtime.Release, settings, *record) (identity, error) {
	return identity{}, supported()
}

// account is what a program runs as.
type account struct{}

func (s settings) account() (account, error) { return account{}, supported() }

func (account) mayRun(string) error { return supported() }

func readOnly(string) bool { return false }

func send(identity, string) error { return supported() }

// No process was started here, so none is found.

func runs(identity) bool                          { return false }
func members(record) ([]identity, error)          { return nil, nil }
func reap(identity) string                        { return "" }
func awaitChild(int) bool                         { return false }
func bootID() string                              { return "" }
func groupFolder(string, *runtime.Release) string { return "" }
func removeGroup(string) bool                     { return true }

// OwnGroup returns "": there are no control groups.
func OwnGroup() string { return "" }
