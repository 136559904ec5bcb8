// Package services says how a host's service manager runs the agent and its
// watcher: the text of their definitions for each manager, and how a watcher is
// started through systemd. Package setup installs them; the upgrade starts the
// watcher.
//
// The watcher is a service of its own, beside the agent's and tied to it by
// nothing: it has to judge, stop and start the agent, so neither may hold back,
// stop or take along the other. At boot it starts whenever an upgrade is being
// watched: a new version that cannot even start does not start its watcher
// either.
package services

import (
	"encoding/xml"
	"fmt"
	"path/filepath"
	"strings"
	"unicode"

	"github.com/muster-fleet/muster/packaging/layout"
)

// WatcherName is the name of the watcher's service beside an agent's.
func WatcherName(agent string) string { return agent + "-watcher" }

// CheckTop refuses a top folder from which no service manager starts a program.
func CheckTop(top string) error {
	const where = "choose another folder with --top, or install with --no-service"
	if strings.Contains(top, "{{") || strings.ContainsFunc(top, unicode.IsControl) {
		return fmt.Errorf("the top folder %q has {{ or a control character in its name, which no service definition can hold: %s", top, where)
	}
	// systemd takes no program with one of them in its path, however it is quoted.
	if strings.ContainsAny(filepath.ToSlash(top), `"'\`) {
		return fmt.Errorf("the top folder %q has a quote or a backslash in its name, and systemd starts no program from there: %s", top, where)
	}
	return nil
}

// AgentSystemd is the agent's unit.
//
// KillMode=process: where the watcher could not be started as its own unit it is
// a child of the agent, and must outlive it. RestartSec: a crash loop has to
// show within seconds. StartLimitIntervalSec=0: systemd must not give up on an
// agent that the watcher is about to replace. RequiresMountsFor: the top folder
// may be a file system of its own.
func AgentSystemd(top string) string {
	return `[Unit]
Description=Muster agent in ` + specifiers(top) + `
After=network-online.target
Wants=network-online.target
RequiresMountsFor=` + quoted(top) + `
StartLimitIntervalSec=0

[Service]
ExecStart=` + quoted(layout.Path(top, layout.AgentLink)) + ` run --top ` + argument(top) + `
Restart=always
RestartSec=3
KillMode=process
TimeoutStopSec=20

[Install]
WantedBy=multi-user.target
`
}

// WatcherSystemd is the watcher's unit.
//
// Type=notify: it has started when it says that it watches, and whoever started
// it may rely on that. TimeoutStartSec=infinity: an older version's watcher may
// not know to say so; it watches all the same, and a watch that is broken off
// begins anew. ConditionPathExists: without a marker there is nothing to watch,
// at boot and after the watch. Restart, without a limit: as long as the marker
// stands somebody has to watch. No ordering to the agent: a unit that hangs in
// its start would hold back the one that puts it right. TimeoutStopSec: a
// shutdown does not wait for a rollback, which goes on at the next boot.
// OOMScoreAdjust: the one that can put a leaking version back goes last.
func WatcherSystemd(top string) string {
	return `[Unit]
Description=Muster upgrade watcher in ` + specifiers(top) + `
ConditionPathExists=` + specifiers(top) + `/` + layout.MarkerFile + `
RequiresMountsFor=` + quoted(top) + `
StartLimitIntervalSec=0

[Service]
Type=notify
NotifyAccess=main
ExecStart=` + quoted(layout.Path(top, layout.WatcherLink)) + ` --top ` + argument(top) + `
Restart=on-failure
RestartSec=3
TimeoutStartSec=infinity
TimeoutStopSec=20
OOMScoreAdjust=-900

[Install]
WantedBy=multi-user.target
`
}

// specifiers escapes what systemd replaces everywhere.
func specifiers(s string) string { return strings.ReplaceAll(s, "%", "%%") }

// quoted makes one word of s.
func quoted(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(specifiers(s)) + `"`
}

// argument is a quoted word of a command line after the program, where systemd
// also replaces variables.
func argument(s string) string { return strings.ReplaceAll(quoted(s), "$", "$$") }

// WatcherLaunchd is the watcher's job on macOS. launchd has no condition: the
// watcher is run at every boot and leaves at once when there is no marker, which
// SuccessfulExit takes for its end. Anything else is a watcher that was killed,
// and it is run again. During an upgrade the agent starts a watcher itself, in a
// session of its own: launchd ends what is left of a job's process group, and
// that one is not in it.
func WatcherLaunchd(name, top string) string {
	return `<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<plist version="1.0">
<dict>
	<key>Label</key>
	<string>` + xmlText(name) + `</string>
	<key>ProgramArguments</key>
	<array>
		<string>` + xmlText(layout.Path(top, layout.WatcherLink)) + `</string>
		<string>--top</string>
		<string>` + xmlText(top) + `</string>
	</array>
	<key>RunAtLoad</key>
	<true/>
	<key>KeepAlive</key>
	<dict>
		<key>SuccessfulExit</key>
		<false/>
	</dict>
</dict>
</plist>
`
}

func xmlText(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a builder takes everything
	return b.String()
}

// WatcherUpstart is the watcher's job under Upstart, which would start again what
// has ended well if it were not told that 0 is an end.
func WatcherUpstart(top string) string {
	return `description "Muster upgrade watcher"

start on filesystem or runlevel [2345]
stop on runlevel [!2345]

respawn
respawn limit 10 60
normal exit 0

exec ` + shellWord(layout.Path(top, layout.WatcherLink)) + ` --top ` + shellWord(top) + `
`
}

// WatcherOpenRC is the watcher's service under OpenRC, without its supervisor,
// which knows no end that is well. The agent starts a watcher that was killed.
func WatcherOpenRC(top string) string {
	return `#!/sbin/openrc-run
description="Muster upgrade watcher"
command=` + shellWord(layout.Path(top, layout.WatcherLink)) + `
command_args=` + shellWord("--top "+shellWord(top)) + `
command_background=true
pidfile="/run/${RC_SVCNAME}.pid"
`
}

func shellWord(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
