// Command agent is a minimal agent for the tests of the watcher and of its host: it holds
// the lock, answers on the control socket, and behaves according to the file "script" beside
// it.
package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/gofrs/flock"

	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/packaging/host/socket"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/watcher/handoff"
	"github.com/muster-fleet/muster/watcher/probe"
)

// script is how this version behaves.
type script struct {
	manifest.Identity
	CrashAtStart   bool             // exits before it holds its lock
	HangAtStart    bool             // runs, but never acquires its lock
	UnhealthyAfter handoff.Duration // 0: never
	Mute           bool             // never answers
	IgnoreTerm     bool             // stops only when killed
	Reexecutes     bool             // re-executes itself when the pointer moves
	Fleet          probe.Fleet      // the state of its link to the server
}

func main() {
	if err := run(os.Args[len(os.Args)-1]); err != nil {
		fmt.Fprintln(os.Stderr, "agent:", err)
		os.Exit(1)
	}
}

func run(top string) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	home := filepath.Dir(program)
	var s script
	b, err := os.ReadFile(filepath.Join(home, "script"))
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	if err != nil {
		return err
	}
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	switch {
	case s.CrashAtStart:
		return fmt.Errorf("%s crashes at start", s.Identity)
	case s.HangAtStart:
		<-term
		return nil
	}

	lockPath := layout.Path(top, layout.AgentLockFile)
	lock := flock.New(lockPath)
	for range 50 { // the watcher may be trying it for an instant
		if held, err := lock.TryLock(); held {
			break
		} else if err != nil {
			return err
		}
		time.Sleep(2 * time.Millisecond)
	}
	if !lock.Locked() {
		return fmt.Errorf("another agent runs")
	}
	if err := os.WriteFile(lockPath, []byte(strconv.Itoa(os.Getpid())), 0o600); err != nil {
		return err
	}
	if !s.Mute {
		if err := serve(top, home, s); err != nil {
			return err
		}
	}
	link := layout.Path(top, layout.AgentLink)
	for {
		select {
		case <-term:
			if !s.IgnoreTerm {
				return nil
			}
		case <-time.After(20 * time.Millisecond):
		}
		if now, err := filepath.EvalSymlinks(link); s.Reexecutes && err == nil && now != program {
			return syscall.Exec(now, os.Args, os.Environ())
		}
	}
}

func serve(top, home string, s script) error {
	path := probe.SocketPath(top)
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return err
	}
	l, err := socket.Listen(path, filepath.Join(top, ".staging"))
	if err != nil {
		return err
	}
	started := time.Now()
	go http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		h := probe.Health{
			Identity: s.Identity, Home: "data/" + filepath.Base(home), PID: os.Getpid(), StartedAt: started, State: probe.Healthy,
			Fleet: s.Fleet,
		}
		if h.Fleet.FailedTries > 0 { // one more each second
			h.Fleet.FailedTries += int(time.Since(started) / time.Second)
		}
		if d := time.Duration(s.UnhealthyAfter); d > 0 && time.Since(started) > d {
			h.State, h.Message = probe.Failed, "out of luck"
		}
		_ = json.NewEncoder(w).Encode(h)
	}))
	return nil
}
