//go:build linux

package nspawn

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/muster-fleet/muster/packaging/host/disk"
)

const (
	// insideVariable is set in the environment of tests in the machine.
	insideVariable = "MUSTER_TEST_INSIDE"
	// TestProgram is the path of the test program in the machine.
	TestProgram = "/usr/local/bin/muster.test"
)

// Inside runs tests of a package in a machine, where they use the real systemd: a test
// outside starts the same test program inside for the same test. The tests share the machine
// and run one after the other. The zero value has no machine yet.
type Inside struct {
	once    sync.Once
	machine *Machine
	dir     string
	err     error
}

// Machine returns the machine. The first call boots it.
func (i *Inside) Machine(t testing.TB) *Machine {
	t.Helper()
	Require(t, Systemd)
	i.once.Do(func() { i.err = i.boot() })
	if i.err != nil {
		t.Fatal(i.err)
	}
	return i.machine
}

func (i *Inside) boot() (err error) {
	if i.dir, err = os.MkdirTemp("", "muster-inside-"); err != nil {
		return err
	}
	ctx := context.Background() // the machine outlives the first test
	if i.machine, err = New(ctx, i.dir, Options{Name: "inside"}); err != nil {
		return err
	}
	if err := i.machine.Boot(ctx); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	program, err := os.ReadFile(self)
	if err != nil {
		return err
	}
	return disk.WriteFile(disk.OS{}, "test program", i.machine.Path(TestProgram), program, 0o755)
}

// Test reports whether the test runs inside. Outside it runs the test inside and reports its
// result. start is a program, with arguments, that executes the command after it, such as
// systemd-run; without it the test has all rights.
func (i *Inside) Test(t testing.TB, start ...string) bool {
	t.Helper()
	if os.Getenv(insideVariable) != "" {
		return true
	}
	name := "^" + t.Name() + "$"
	args := slices.Concat(start, []string{"env", insideVariable + "=1", TestProgram, "-test.v", "-test.timeout=10m"})
	if _, ok := t.(*testing.B); ok {
		args = append(args, "-test.run=^$", "-test.bench="+name)
	} else {
		args = append(args, "-test.run="+name)
	}
	out, err := i.Machine(t).Run(t.Context(), args...)
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	} else {
		t.Log(out)
	}
	return false
}

// Close removes the machine, if there is one.
func (i *Inside) Close() error {
	if i.dir == "" {
		return nil
	}
	var err error
	if i.machine != nil {
		err = i.machine.Close()
	}
	return errors.Join(err, os.RemoveAll(i.dir))
}
