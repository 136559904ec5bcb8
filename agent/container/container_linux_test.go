package container

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/testing/kit/require"
)

// topVariable makes this program run the agent of a folder. It is a program of its own because it
// reaps every child.
const topVariable = "MUSTER_TEST_TOP"

func TestMain(m *testing.M) {
	top := os.Getenv(topVariable)
	if top == "" {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := (Container{Top: top, Log: slog.New(slog.NewTextHandler(os.Stderr, nil))}).Run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// first starts process 1 of a folder whose agent and watcher are these scripts.
func first(t *testing.T, agent, watcher string, watched bool) (*exec.Cmd, *bytes.Buffer, string) {
	t.Helper()
	sh, self := require.Program(t, "sh"), os.Args[0]
	top := t.TempDir()
	files := map[string]string{layout.AgentLink: agent, layout.WatcherLink: watcher}
	if watched {
		files[layout.MarkerFile] = ""
	}
	for name, text := range files {
		path := layout.Path(top, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte("#!"+sh+"\n"+text+"\n"), 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	c := exec.CommandContext(ctx, self)
	c.Env = append(os.Environ(), topVariable+"="+top)
	c.Stdout, c.Stderr, c.WaitDelay = &out, &out, time.Second
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	return c, &out, top
}

func TestContainerEndsAsItsAgentDoes(t *testing.T) {
	for agent, says := range map[string]string{
		"exit 0":        "",
		"exit 7":        "exit status 7",
		"kill -KILL $$": "killed",
	} {
		c, out, _ := first(t, agent, "exit 1", false)
		err := c.Wait()
		if (err == nil) != (says == "") || !strings.Contains(out.String(), says) {
			t.Errorf("with an agent that does %s: %v, %s, want %q", agent, err, out, says)
		}
	}
}

// The watcher decides: here it gives up the version, which ends the watch.
func TestContainerOutlivesItsAgentWhileAnUpgradeIsWatched(t *testing.T) {
	c, out, top := first(t, "exit 7", `sleep 2; touch "$2/watched"; rm "$2/`+layout.MarkerFile+`"`, true)
	err := c.Wait()
	if err == nil || !strings.Contains(out.String(), "watcher started") || !strings.Contains(out.String(), "exit status 7") {
		t.Errorf("%v, %s", err, out)
	}
	if _, err := os.Stat(filepath.Join(top, "watched")); err != nil {
		t.Errorf("the container ended before the watch: %v", err)
	}
}

func TestContainerEndsWithItsAgentOnSIGTERM(t *testing.T) {
	c, out, top := first(t, `trap 'touch "$3/stopped"; exit 0' TERM; touch "$3/runs"; while :; do sleep 0.1; done`, "exit 1", false)
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(filepath.Join(top, "runs")); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the agent does not run: %s", out)
		}
	}
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	err := c.Wait()
	if _, serr := os.Stat(filepath.Join(top, "stopped")); err != nil || serr != nil {
		t.Errorf("%v, %v: %s", err, serr, out)
	}
}
