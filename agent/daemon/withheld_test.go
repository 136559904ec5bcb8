//go:build linux || darwin

package daemon

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/muster-fleet/muster/agent/component"
	"github.com/muster-fleet/muster/agent/runtime"
	"github.com/muster-fleet/muster/agent/runtime/process"
	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/pkg/build"
	"github.com/muster-fleet/muster/packaging/pkg/install"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/testing/kit/fakepkg"
	"github.com/muster-fleet/muster/testing/kit/fakeserver"
	"github.com/muster-fleet/muster/watcher/probe"
)

// An agent whose host has booted starts a component only once its server has answered, and then by
// the policy that came with the answer.
func TestWithheldComponentWaitsForTheServersAnswer(t *testing.T) {
	m := newMachine(t)
	m.server.Hold = time.Hour // it answers only with an action
	m.runtimes = map[string]runtime.Adapter{"process": process.New(process.Options{Disk: disk.OS{}})}
	pidFile := filepath.Join(t.TempDir(), "pid")
	m.installComponent("#!/bin/sh\necho $$ > " + pidFile + "\nexec sleep 1000\n")
	t.Cleanup(func() {
		m.stop()
		if _, err := component.Uninstall(t.Context(), disk.OS{}, m.top, m.runtimes); err != nil {
			t.Error(err)
		}
	})
	revision := 0
	inForce := func(version string, changing bool) {
		revision++
		m.server.Send(agentapi.Action{
			ID: fmt.Sprintf("policy:p1:%d", revision), Type: agentapi.ActionPolicyChange, CreatedAt: time.Now(),
			Data: fmt.Appendf(nil, `{"policy":{"id":"p1","components":[{"name":"web","runtime":"process","lockstep":true,"in_force":{"version":%q,"changing":%v}}]}}`, version, changing),
		})
	}
	reported := func(what string, ok func(fakeserver.Checkin, agentapi.Component) bool) {
		t.Helper()
		m.lastIs(what, func(c fakeserver.Checkin) bool {
			var list []agentapi.Component
			return json.Unmarshal(c.Components, &list) == nil && len(list) == 1 && ok(c, list[0])
		})
	}
	runs := func(c fakeserver.Checkin, w agentapi.Component) bool {
		return !w.StartWithheld && w.Status == "HEALTHY" && !c.AwaitsAnswer
	}
	boot := func() {
		t.Helper()
		m.stop()
		text, err := os.ReadFile(pidFile)
		if err != nil {
			t.Fatal(err)
		}
		pid, err := strconv.Atoi(string(bytes.TrimSpace(text)))
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if _, err := syscall.Wait4(pid, nil, 0, nil); err != nil && !errors.Is(err, syscall.ECHILD) { // until it has ended
			t.Fatal(err)
		}
		if err := os.Remove(pidFile); err != nil {
			t.Fatal(err)
		}
		m.runtimes = map[string]runtime.Adapter{"process": process.New(process.Options{Disk: disk.OS{}})}
		m.start()
		reported("it waits for the server", func(c fakeserver.Checkin, w agentapi.Component) bool {
			return w.StartWithheld && w.Status == "STOPPED" && strings.Contains(w.Message, "the server has not answered yet") && c.AwaitsAnswer
		})
		if _, err := os.Stat(pidFile); err == nil {
			t.Error("it was started")
		}
	}
	inForce("1.0.0", false)
	m.start()
	reported("it runs", runs)

	boot()
	m.server.Send(agentapi.Action{ID: "s1", Type: agentapi.ActionSettings, Data: json.RawMessage(`{}`)}) // any answer
	reported("it runs again", runs)

	boot()
	inForce("1.1.0", false)
	reported("it has to switch", func(c fakeserver.Checkin, w agentapi.Component) bool {
		return w.StartWithheld && w.Version == "1.0.0" && strings.Contains(w.Message, "version 1.1.0 is in force") && !c.AwaitsAnswer
	})
	if _, err := os.Stat(pidFile); err == nil {
		t.Error("it was started with the version before")
	}
	local := probe.Client{Dial: probe.DialSocket(m.top)}
	if err := local.Release(t.Context(), probe.ReleaseRequest{Component: "web", Undo: true}); err == nil || !strings.Contains(err.Error(), "is not being upgraded in lockstep") {
		t.Errorf("undone is %v", err)
	}
	if err := local.Release(t.Context(), probe.ReleaseRequest{Component: "web"}); err != nil {
		t.Fatal(err)
	}
	reported("it was released", runs)
	inForce("1.2.0", false)
	reported("it is stopped", func(_ fakeserver.Checkin, w agentapi.Component) bool {
		return w.StartWithheld && strings.Contains(w.Message, "version 1.2.0 is in force")
	})
}

// installComponent installs web 1.0.0 with a program, as an upgrade leaves it.
func (m *machine) installComponent(program string) {
	m.t.Helper()
	c := manifest.Component{Name: "web", Runtime: "process", Settings: map[string]any{"program": "bin/web"}}
	spec := fakepkg.ComponentSpec(m.t, c, "1.0.0", map[string]string{"bin/web": program})
	archive := filepath.Join(m.t.TempDir(), "web.tar.gz")
	var buf bytes.Buffer
	if _, err := build.Build(m.t.Context(), spec, &buf); err != nil {
		m.t.Fatal(err)
	}
	dir := filepath.Join(m.top, component.FolderName, "web")
	for _, err := range []error{os.WriteFile(archive, buf.Bytes(), 0o600), os.MkdirAll(filepath.Join(dir, "data"), 0o755)} {
		if err != nil {
			m.t.Fatal(err)
		}
	}
	p, err := install.Unpack(m.t.Context(), disk.OS{}, archive, dir)
	if err == nil {
		err = os.Symlink(filepath.FromSlash(p.Home()), filepath.Join(dir, runtime.CurrentLink))
	}
	if err != nil {
		m.t.Fatal(err)
	}
}
