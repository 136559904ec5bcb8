//go:build linux || darwin

package daemon

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-fleet/muster/agent/component"
	"github.com/muster-fleet/muster/agent/queue"
	"github.com/muster-fleet/muster/agent/runtime"
	"github.com/muster-fleet/muster/agent/runtime/process"
	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/testing/kit/fakeserver"
	"github.com/muster-fleet/muster/watcher/handoff"
	"github.com/muster-fleet/muster/watcher/probe"
)

// A version whose queue cannot be written where it is, on a disk that others can write to, is FAILED until it can.
func TestVersionThatCannotWriteItsQueueHasFailed(t *testing.T) {
	m := newMachine(t)
	m.publish("1.1.0")
	m.start()
	m.lastIs("1.0.0 is well", func(c fakeserver.Checkin) bool { return c.Status == "online" })
	m.server.Upgrade("a1", "1.1.0")
	m.lastIs("1.1.0 is watched", func(c fakeserver.Checkin) bool { return state(c) == agentapi.UpgradeWatching && c.Status == "online" })
	m.ack("a1")

	marker, err := handoff.ReadMarker(disk.OS{}, m.top)
	if err != nil {
		t.Fatal(err)
	}
	run := filepath.Dir(queue.Path(layout.Path(m.top, marker.To.Home)))
	must(t, os.Rename(run, run+".aside"), os.WriteFile(run, nil, 0o600))
	m.health("its queue's check fails", func(h probe.Health) bool {
		return h.State == probe.Failed && len(h.Checks) == 1 && h.Checks[0].Name == "queue" && h.Checks[0].AtFault && !h.Checks[0].Since.IsZero()
	})
	m.lastIs("it has failed", func(c fakeserver.Checkin) bool {
		return c.Status == "error" && strings.Contains(c.Message, "the agent cannot write its queue") && strings.Contains(c.Message, "(since 2")
	})

	must(t, os.Remove(run), os.Rename(run+".aside", run))
	m.lastIs("it is well again", func(c fakeserver.Checkin) bool { return c.Status == "online" })
}

// The marker has how the version before saw its components, and the next one says since when one has failed.
func TestComponentsAreComparedWithThoseBeforeTheSwitch(t *testing.T) {
	m := newMachine(t)
	m.runtimes = map[string]runtime.Adapter{"process": process.New(process.Options{Disk: disk.OS{}})}
	broken, pidFile := filepath.Join(t.TempDir(), "broken"), filepath.Join(t.TempDir(), "pid")
	m.installComponent("#!/bin/sh\n[ ! -e " + broken + " ] || exit 3\necho $$ > " + pidFile + "\nexec sleep 1000\n")
	t.Cleanup(func() {
		m.stop()
		if _, err := component.Uninstall(t.Context(), disk.OS{}, m.top, m.runtimes); err != nil {
			t.Error(err)
		}
	})
	m.publish("1.1.0")
	m.start()
	m.server.Send(agentapi.Action{
		ID: "policy:p1:1", Type: agentapi.ActionPolicyChange, CreatedAt: time.Now(),
		Data: json.RawMessage(`{"policy":{"id":"p1","components":[{"name":"web","runtime":"process","lockstep":true,"in_force":{"version":"1.0.0"}}]}}`),
	})
	m.health("the component is healthy", func(h probe.Health) bool { return len(h.Workloads) == 1 && h.Workloads[0].State == probe.Healthy })
	m.server.Upgrade("a1", "1.1.0")
	m.lastIs("1.1.0 is watched", func(c fakeserver.Checkin) bool { return state(c) == agentapi.UpgradeWatching })
	marker, err := handoff.ReadMarker(disk.OS{}, m.top)
	if err != nil || fmt.Sprint(marker.Before) != "{[] map[web:1.0.0]}" {
		t.Fatalf("the marker has %+v, %v", marker, err)
	}

	must(t, os.WriteFile(broken, nil, 0o600))
	text, err := os.ReadFile(pidFile)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(string(bytes.TrimSpace(text)))
	must(t, err, syscall.Kill(pid, syscall.SIGKILL))
	m.health("the component has failed, and the agent has not", func(h probe.Health) bool {
		w := h.Workloads[0]
		return !w.FailedSince.IsZero() && w.Version == "1.0.0" && h.State == probe.Degraded && len(h.Checks) == 0
	})
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func TestWhoIsToBlameForAQueueThatCannotBeWritten(t *testing.T) {
	in := func(err error) error {
		return &disk.Error{Op: "x", Err: &fs.PathError{Op: "open", Path: "run/x", Err: err}}
	}
	for _, c := range []struct {
		err, elsewhere error
		agent          bool
	}{
		{nil, nil, false},
		{in(syscall.EACCES), nil, true},
		{in(syscall.ENOTDIR), nil, true},
		{in(syscall.EACCES), in(syscall.EACCES), false}, // so is every other program's
		{in(syscall.ENOSPC), nil, false},                // there is space again by now
		{in(syscall.EDQUOT), nil, false},
		{in(syscall.EROFS), nil, false},
		{in(syscall.EIO), nil, false},
		{in(syscall.ENFILE), nil, false},
		{in(syscall.EMFILE), in(syscall.EMFILE), true},
	} {
		if got := blames(c.err, c.elsewhere); got != c.agent {
			t.Errorf("%v, elsewhere %v: the agent is at fault: %v", c.err, c.elsewhere, got)
		}
	}
}

func TestSettingsThatThisProcessHasReadAreNotItsFault(t *testing.T) {
	denied := &fs.PathError{Op: "open", Path: "agent.yml", Err: syscall.EACCES}
	for _, c := range []struct {
		is    settingsCheck
		agent bool
	}{
		{settingsCheck{problem: denied}, true},
		{settingsCheck{problem: denied, read: true}, false}, // somebody has changed the file
		{settingsCheck{problem: &fs.PathError{Op: "read", Path: "agent.yml", Err: syscall.EIO}}, false},
		{settingsCheck{problem: errors.New("line 2: key colour is not known")}, false},
		{settingsCheck{}, false},
	} {
		if got := c.is.unread(); got != c.agent {
			t.Errorf("%+v: the agent is at fault: %v", c.is, got)
		}
	}
}

// A check that fails has failed since it first did so without a pass in between, whatever else fails.
func TestChecksFailSinceTheyFirstDid(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		now := time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC)
		since := map[string]time.Time{}
		var failing []probe.Check
		for range rapid.IntRange(1, 50).Draw(rt, "looks") {
			now = now.Add(time.Duration(rapid.IntRange(0, 600).Draw(rt, "seconds")) * time.Second)
			var tries []selfTry
			for _, name := range []string{"disk", "queue", "settings"} {
				if !rapid.Bool().Draw(rt, name) {
					delete(since, name)
					continue
				}
				tries = append(tries, selfTry{name: name, problem: "it cannot", atFault: rapid.Bool().Draw(rt, "at fault")})
				if _, known := since[name]; !known {
					since[name] = now
				}
			}
			failing = judgeSelf(failing, tries, now)
			if len(failing) != len(tries) {
				rt.Fatalf("%d checks of %d that failed", len(failing), len(tries))
			}
			for i, c := range failing {
				if c.Since != since[c.Name] || c.AtFault != tries[i].atFault {
					rt.Fatalf("%+v, want it since %v: %+v", c, since[c.Name], tries)
				}
			}
		}
	})
}
