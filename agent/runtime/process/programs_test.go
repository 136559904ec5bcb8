//go:build linux || darwin

package process

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/muster-fleet/muster/agent/runtime"
	"github.com/muster-fleet/muster/agent/runtime/runtimetest"
	"github.com/muster-fleet/muster/packaging/host/disk"
)

// The test's program is also that of components and agents, by its first argument.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		if program := programs[os.Args[1]]; program != nil {
			os.Exit(program(os.Args[2:]))
		}
	}
	goleak.VerifyTestMain(m)
}

// programs get the arguments after their name.
var programs = map[string]func(args []string) int{
	"good":     func(args []string) int { return runtimetest.Program(args[0], false) },
	"broken":   func(args []string) int { return runtimetest.Program(args[0], true) },
	"stubborn": stubborn,
	"family":   family,
	"member":   member,
	"talker":   talker,
	"environ":  environ,
	"agent":    agentProgram,
}

// stubborn ends at no signal that it can handle.
func stubborn([]string) int {
	signal.Ignore(syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT)
	fmt.Println("stubborn runs")
	select {}
}

// family starts children that try to outlive it, each as one of the arguments says.
func family(kinds []string) int {
	time.Sleep(100 * time.Millisecond) // a program needs some time before it has children
	for _, kind := range kinds {
		child := exec.Command(os.Args[0], "member", kind)
		child.Stdout = os.Stdout
		switch kind {
		case "session":
			child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		case "hidden":
			child.SysProcAttr, child.Env = &syscall.SysProcAttr{Setsid: true}, []string{"NOTHING="}
		case "no-environment":
			child.Env = []string{"NOTHING="}
		}
		if err := child.Start(); err != nil {
			fmt.Println(err)
			return 1
		}
	}
	return runtimetest.Program("family", false)
}

// member prints its process id. It ends by no signal that it can handle, and as a parent
// it first starts a grandchild.
func member(args []string) int {
	signal.Ignore(syscall.SIGTERM, syscall.SIGHUP)
	if slices.Contains(args, "parent") {
		child := exec.Command(os.Args[0], "member", "grandchild")
		child.Stdout = os.Stdout
		if err := child.Start(); err != nil {
			fmt.Println(err)
			return 1
		}
	}
	fmt.Println("member", os.Getpid())
	select {}
}

// talker prints numbered lines without an end.
func talker([]string) int {
	for i := 0; ; i++ {
		fmt.Printf("line %010d %s\n", i, strings.Repeat("x", 80))
		time.Sleep(100 * time.Microsecond)
	}
}

func environ([]string) int {
	dir, err := os.Getwd()
	fmt.Println("working directory", dir, err)
	for _, v := range os.Environ() {
		fmt.Println("variable", v)
	}
	return runtimetest.Program("environ", false)
}

// agentProgram is an agent in a process of its own. It does what its first argument says
// with the release in the second, prints the status, and re-executes itself at SIGUSR1.
func agentProgram(args []string) int {
	fail := func(err error) int {
		fmt.Println("error:", err)
		return 1
	}
	ctx := context.Background()
	var r runtime.Release
	if err := json.Unmarshal([]byte(args[1]), &r); err != nil {
		return fail(err)
	}
	a := New(Options{Disk: disk.OS{}, Groups: OwnGroup()})
	do := map[string]func(context.Context, *runtime.Release) error{"start": a.Start, "resume": a.Resume, "check": a.Check}[args[0]]
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGUSR1)
	if err := do(ctx, &r); err != nil {
		return fail(err)
	}
	s, err := a.Status(ctx, &r)
	if err != nil {
		return fail(err)
	}
	fmt.Println("running", s.PID)
	<-signals
	a.Detach()
	return fail(syscall.Exec(os.Args[0], []string{os.Args[0], "agent", "resume", args[1]}, os.Environ()))
}
