package cli_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/muster-fleet/muster/server/app/apptest"
	"github.com/muster-fleet/muster/server/cli"
)

// onTerminal runs a command whose output is a terminal, and returns what it shows. It
// presses Ctrl-C once the text last is shown.
func (o operator) onTerminal(last string, args ...string) string {
	o.t.Helper()
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		o.t.Skip("this system has no pseudo-terminals: ", err)
	}
	defer terminal.Close()
	fd := int(terminal.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		o.t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		o.t.Fatal(err)
	}
	program, err := os.OpenFile(fmt.Sprint("/dev/pts/", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		o.t.Fatal(err)
	}
	cmd := cli.New(apptest.Version)
	cmd.SetArgs(args)
	cmd.SetOut(program)
	cmd.SetErr(program)
	ctx, cancel := context.WithTimeout(o.t.Context(), apptest.WaitLimit)
	defer cancel()
	shown := make(chan string, 1)
	go func() {
		var text []byte
		buf := make([]byte, 4096)
		for {
			n, err := terminal.Read(buf)
			text = append(text, buf[:n]...)
			if last != "" && strings.Contains(string(text), last) {
				cancel()
			}
			if err != nil { // EIO when the program has closed its side
				shown <- string(text)
				return
			}
		}
	}()
	code := cli.Run(ctx, cmd)
	program.Close()
	text := strings.ReplaceAll(<-shown, "\r\n", "\n")
	if code != 0 {
		o.t.Fatalf("muster %s: exit code %d: %s", strings.Join(args, " "), code, text)
	}
	return text
}

func TestSecretsAreShownOnATerminal(t *testing.T) {
	o := newOperator(t)
	s := apptest.Start(t)
	o.login(s)
	key := strings.TrimSpace(o.onTerminal("", "admin-keys", "create", "ann"))
	t.Setenv("MUSTER_API_KEY", key)
	o.run("status")
	text := o.onTerminal("", "keys", "create")
	token, _, _ := strings.Cut(text, "\n")
	o.contains(text, "--token "+token+" ")
	s.Token = token
	s.Enroll("web-01", "1.0.0")
}

func TestFirstStartShowsTheAdminKeyOnATerminal(t *testing.T) {
	o := newOperator(t)
	data := t.TempDir()
	text := o.onTerminal("muster keys create`.\n", "server", "--data", data, "--agents-listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0")
	_, rest, _ := strings.Cut(text, "shown only once:\n\n  ")
	key, _, _ := strings.Cut(rest, "\n")
	if key == "" || !strings.Contains(text, "/login#key="+key) || !strings.Contains(text, "muster login --url") {
		t.Errorf("the first start shows\n%s", text)
	}
	if files, err := filepath.Glob(filepath.Join(data, "first-*")); err != nil || len(files) > 0 {
		t.Errorf("it wrote %v, %v", files, err)
	}
}
