package check

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"

	"github.com/muster-fleet/muster/packaging/host/disk"
)

// Program is a program of a package, or of the host.
type Program struct {
	// Home is the folder of the package's version. The program is run in it.
	Home string
	// Exec are the program and its arguments. A relative path is below Home.
	Exec []string
	// Env are variables besides those of this process, as name=value.
	Env []string
	// As is the account that runs it, disk.Own for that of this process.
	As disk.Owner
}

// Execute runs a program without a shell, and returns its exit status, or -1 if it has none. The
// error is nil for status 0 only, and quotes the end of the output. When ctx ends Execute kills
// the program with its children, and returns within checkWaitDelay.
func Execute(ctx context.Context, p Program) (status int, err error) {
	program := p.Exec[0]
	if !filepath.IsAbs(program) {
		program = filepath.Join(p.Home, filepath.FromSlash(program))
	}
	cmd := exec.CommandContext(ctx, program, p.Exec[1:]...)
	cmd.Dir = p.Home
	if len(p.Env) > 0 {
		cmd.Env = append(cmd.Environ(), p.Env...)
	}
	out := &tail{}
	cmd.Stdout, cmd.Stderr = out, out
	cmd.WaitDelay = checkWaitDelay
	if err := isolate(cmd, p.As); err != nil {
		return -1, fmt.Errorf("%s: %w", p.Exec[0], err)
	}
	cmd.Cancel = func() error { return killGroup(cmd.Process) }
	err = cmd.Run()
	if errors.Is(err, exec.ErrWaitDelay) {
		// The program succeeded, and children hold its output open.
		_ = killGroup(cmd.Process) // children that left the group stay
		return 0, nil
	}
	if err == nil {
		return 0, nil
	}
	quoted := ""
	if text := bytes.TrimSpace(out.bytes()); len(text) > 0 {
		quoted = fmt.Sprintf(", saying %q", text)
	}
	if ctx.Err() != nil {
		return -1, fmt.Errorf("%s: no end in time, killed%s", p.Exec[0], quoted)
	}
	return cmd.ProcessState.ExitCode(), fmt.Errorf("%s: %w%s", p.Exec[0], err, quoted)
}

// tail keeps the end of what is written to it. It needs no lock: exec writes both streams
// from one goroutine, because they are the same writer.
type tail struct{ kept []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p[max(0, len(p)-maxCheckOutput):]...)
	t.kept = t.kept[max(0, len(t.kept)-maxCheckOutput):]
	return len(p), nil
}

func (t *tail) bytes() []byte { return bytes.ToValidUTF8(t.kept, nil) }
