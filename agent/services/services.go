// Package services holds the service definitions of the agent and its watcher for each
// service manager, and starts a watcher through systemd. Package setup installs the
// services; package upgrade starts the watcher.
//
// The watcher is a separate service without dependencies between the two: it stops and
// starts the agent, so neither may delay or stop the other. At boot it starts if an
// upgrade is being watched, because a new version that does not start cannot start its
// watcher.
package services

import (
	"encoding/xml"
	"fmt"
	"path/filepath"
	"strings"
	"unicode"

	"github.com/muster-fleet/muster/packaging/host/layout"
)

// WatcherName returns the name of the watcher's service for an agent's.
func WatcherName(agent string) string { return agent + "-watcher" }

// CheckFolder refuses a folder from which a service manager cannot start a program. flag is the
// one that names the folder.
func CheckFolder(flag, folder string) error {
	where := "choose another folder with " + flag + ", or install with --no-service"
	if strings.Contains(folder, "{{") || strings.ContainsFunc(folder, unicode.IsControl) {
		return fmt.Errorf("the folder %q has {{ or a control character in its name, which no service definition can hold: %s", folder, where)
	}
	for _, private := range []string{"/tmp", "/var/tmp"} { // PrivateTmp hides them from the agent
		if folder == private || strings.HasPrefix(filepath.ToSlash(folder), private+"/") {
			return fmt.Errorf("the folder %s is below %s, which the service does not see: %s", folder, private, where)
		}
	}
	// systemd refuses a program with one of them in its path, however it is quoted.
	if strings.ContainsAny(filepath.ToSlash(folder), `"'\`) {
		return fmt.Errorf("the folder %q has a quote or a backslash in its name, and systemd starts no program from there: %s", folder, where)
	}
	return nil
}

// sandbox is common to the agent and the watcher, so that a check of a package can do what the
// agent can. The error number makes a program that tries more fail, not die.
const sandbox = `ProtectSystem=strict
ProtectHome=read-only
PrivateTmp=yes
PrivateDevices=yes
PrivateMounts=yes
ProtectProc=invisible
NoNewPrivileges=yes
RestrictSUIDSGID=yes
RestrictNamespaces=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
SystemCallArchitectures=native
SystemCallErrorNumber=EPERM
ProtectClock=yes
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectControlGroups=yes
ProtectHostname=yes
LockPersonality=yes
RestrictRealtime=yes
`

// AgentSystemd returns the agent's unit.
//
// KillMode=process: a watcher that could not be started as its own unit is a child of
// the agent and must outlive it. RestartSec: the watcher must detect a crash loop within
// seconds. StartLimitIntervalSec=0: systemd must not give up an agent that the watcher is
// about to replace. RequiresMountsFor: the top folder may be on a file system of its own.
// ReadWritePaths has the folder of the pointer too if it is another one.
//
// Delegate, and the control groups below the unit's own as the only ones that it may
// change: each component that the agent runs as a process gets one, so that none of its
// children is left when it stops. The paths are those of version 2 alone and beside
// version 1, and of version 1 alone; systemd skips those that do not exist.
//
// Capabilities and system calls are lists of what is denied, because the agent runs the programs
// of its components, and a later version of it runs under the same unit. Denied is what no
// program can use in this sandbox, or what concerns the host and no service.
func AgentSystemd(r layout.Roots) string {
	top := r.Top
	return `[Unit]
Description=Muster agent in ` + specifiers(top) + `
After=network-online.target
Wants=network-online.target
RequiresMountsFor=` + folders(r) + `
StartLimitIntervalSec=0

[Service]
ExecStart=` + quoted(r.Link(layout.AgentLink)) + ` run --top ` + argument(top) + `
Restart=always
RestartSec=3
KillMode=process
TimeoutStopSec=20
ReadWritePaths=` + folders(r) + `
ReadWritePaths=-/sys/fs/cgroup/system.slice/%n -/sys/fs/cgroup/unified/system.slice/%n -/sys/fs/cgroup/systemd/system.slice/%n
Delegate=pids
CapabilityBoundingSet=~CAP_SYS_ADMIN CAP_SYS_BOOT CAP_SYS_PACCT CAP_SYS_TTY_CONFIG CAP_BLOCK_SUSPEND CAP_WAKE_ALARM
CapabilityBoundingSet=~CAP_LINUX_IMMUTABLE CAP_LEASE CAP_BPF CAP_PERFMON CAP_MAC_ADMIN CAP_MAC_OVERRIDE CAP_AUDIT_CONTROL CAP_AUDIT_READ
SystemCallFilter=~@clock @cpu-emulation @module @mount @obsolete @raw-io @reboot @swap
` + sandbox + `
[Install]
WantedBy=multi-user.target
`
}

// WatcherSystemd returns the watcher's unit.
//
// Type=notify: the unit has started when the watcher watches. TimeoutStartSec=infinity:
// a watcher that is slow to begin must not be killed for that, since a watch that is
// interrupted begins again. ConditionPathExists: without a marker there is
// nothing to watch. Restart, without a limit: a watcher must run as long as the marker
// exists. No ordering after the agent: an agent that hangs at its start would delay the
// watcher that replaces it. TimeoutStopSec: a shutdown does not wait for a rollback, which
// continues at the next boot. OOMScoreAdjust: the watcher must survive a version that
// leaks memory.
//
// Its sandbox is the agent's, with fewer rights. The watcher itself needs CAP_SYS_PTRACE to see
// which program the agent's process runs, CAP_KILL to end it, and the rights to files to remove a
// version. The checks of packages, which it runs, need the others: to become another user as by
// runuser (SETUID, SETGID, AUDIT_WRITE) and to ping (NET_RAW). What a check cannot do is to use
// sudo, which the kernel denies where no new privileges may be acquired: root needs it only to
// become another user. A check that writes to /tmp finds one of its own there.
func WatcherSystemd(r layout.Roots) string {
	top := r.Top
	return `[Unit]
Description=Muster upgrade watcher in ` + specifiers(top) + `
ConditionPathExists=` + specifiers(top) + `/` + layout.MarkerFile + `
RequiresMountsFor=` + folders(r) + `
StartLimitIntervalSec=0

[Service]
Type=notify
NotifyAccess=main
ExecStart=` + quoted(r.Link(layout.WatcherLink)) + ` --top ` + argument(top) + `
Restart=on-failure
RestartSec=3
TimeoutStartSec=infinity
TimeoutStopSec=20
OOMScoreAdjust=-900
ReadWritePaths=` + folders(r) + `
CapabilityBoundingSet=CAP_SYS_PTRACE CAP_KILL CAP_DAC_OVERRIDE CAP_DAC_READ_SEARCH CAP_FOWNER CAP_SETUID CAP_SETGID CAP_AUDIT_WRITE CAP_NET_RAW
SystemCallFilter=@system-service
` + sandbox + `
[Install]
WantedBy=multi-user.target
`
}

// folders returns the folders that the agent and the watcher change.
func folders(r layout.Roots) string {
	if r.LinkDir() == r.Top {
		return quoted(r.Top)
	}
	return quoted(r.Top) + " " + quoted(r.Links)
}

// specifiers escapes systemd's specifiers.
func specifiers(s string) string { return strings.ReplaceAll(s, "%", "%%") }

// quoted returns s as one quoted word.
func quoted(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(specifiers(s)) + `"`
}

// argument returns s as a quoted argument of a command line, in which systemd also
// expands variables.
func argument(s string) string { return strings.ReplaceAll(quoted(s), "$", "$$") }

// AgentLaunchd returns the agent's job on macOS. ThrottleInterval is how often launchd starts a
// job that ends at once: its own 10 s, written out because the watcher's rules count on it. The job has
// no files for its output, which launchd would never rotate: the agent has a log of its own.
func AgentLaunchd(name string, r layout.Roots) string {
	return launchdJob(name, []string{r.Link(layout.AgentLink), "run", "--top", r.Top}, `	<key>KeepAlive</key>
	<true/>
	<key>ThrottleInterval</key>
	<integer>10</integer>
`)
}

// WatcherLaunchd returns the watcher's job on macOS. launchd has no conditions: the
// watcher runs at every boot and exits at once if there is no marker. SuccessfulExit
// makes launchd restart only a watcher that was killed. During an upgrade the agent
// starts a watcher itself, in a new session, so that it is not in the process group that
// launchd kills at the end of a job.
func WatcherLaunchd(name string, r layout.Roots) string {
	return launchdJob(name, []string{r.Link(layout.WatcherLink), "--top", r.Top}, `	<key>KeepAlive</key>
	<dict>
		<key>SuccessfulExit</key>
		<false/>
	</dict>
`)
}

// launchdJob returns a job that starts at boot.
func launchdJob(name string, command []string, more string) string {
	var arguments strings.Builder
	for _, word := range command {
		arguments.WriteString("\t\t<string>" + xmlText(word) + "</string>\n")
	}
	return `<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<plist version="1.0">
<dict>
	<key>Label</key>
	<string>` + xmlText(name) + `</string>
	<key>ProgramArguments</key>
	<array>
` + arguments.String() + `	</array>
	<key>RunAtLoad</key>
	<true/>
` + more + `</dict>
</plist>
`
}

func xmlText(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a builder does not fail
	return b.String()
}

// WatcherUpstart returns the watcher's job for Upstart. "normal exit 0" keeps Upstart
// from restarting a watcher that has succeeded.
func WatcherUpstart(r layout.Roots) string {
	return `description "Muster upgrade watcher"

start on filesystem or runlevel [2345]
stop on runlevel [!2345]

respawn
respawn limit 10 60
normal exit 0

exec ` + shellWord(r.Link(layout.WatcherLink)) + ` --top ` + shellWord(r.Top) + `
`
}

// AgentOpenRC returns the agent's service for OpenRC, whose supervisor restarts it like systemd
// does: after three seconds, and without a limit.
func AgentOpenRC(r layout.Roots) string {
	return `#!/sbin/openrc-run
description="Muster agent"
supervisor=supervise-daemon
command=` + shellWord(r.Link(layout.AgentLink)) + `
command_args=` + shellWord("run --top "+shellWord(r.Top)) + `
respawn_delay=3
respawn_max=0

depend() {
	use net
}
`
}

// WatcherOpenRC returns the watcher's service for OpenRC. It does not use OpenRC's
// supervisor, which would restart a watcher that has succeeded. The agent restarts a
// watcher that was killed. Most of the time it has ended before it is stopped, which to OpenRC
// is a failure.
func WatcherOpenRC(r layout.Roots) string {
	return `#!/sbin/openrc-run
description="Muster upgrade watcher"
command=` + shellWord(r.Link(layout.WatcherLink)) + `
command_args=` + shellWord("--top "+shellWord(r.Top)) + `
command_background=true
pidfile="/run/${RC_SVCNAME}.pid"

stop() {
	ebegin "Stopping ${RC_SVCNAME}"
	start-stop-daemon --stop --quiet --pidfile "$pidfile" 2>/dev/null
	rm -f "$pidfile"
	eend 0
}
`
}

// AgentSysV returns the agent's script for System V init, which restarts nothing: the script's
// loop does.
func AgentSysV(name string, r layout.Roots) string {
	return sysV(name, "Muster agent", r.Link(layout.AgentLink), r.Top, `while :; do "$0" run --top "$1"; sleep 3; done`)
}

// WatcherSysV returns the watcher's script for System V init. Its loop restarts a watcher that has
// failed.
func WatcherSysV(name string, r layout.Roots) string {
	return sysV(name, "Muster upgrade watcher", r.Link(layout.WatcherLink), r.Top, `until "$0" --top "$1"; do sleep 3; done`)
}

// sysV returns a script whose loop is the leader of a session of its own, so that stop ends all
// that is in it. A watcher and the components have sessions of their own. The process id of an
// earlier boot may be another program's now, which has another command line.
func sysV(name, what, program, top, loop string) string {
	return `#!/bin/sh
# chkconfig: 2345 99 01
# description: ` + what + `
### BEGIN INIT INFO
# Provides:          ` + name + `
# Required-Start:    $remote_fs $network
# Required-Stop:     $remote_fs $network
# Default-Start:     2 3 4 5
# Default-Stop:      0 1 6
# Short-Description: ` + what + `
### END INIT INFO

program=` + shellWord(program) + `
top=` + shellWord(top) + `
pidfile=/var/run/` + name + `.pid

is_running() {
	pid=$(cat "$pidfile" 2>/dev/null) && grep -qF -e "$program" "/proc/$pid/cmdline" 2>/dev/null
}

start() {
	if is_running; then
		echo "Already started"
		return 0
	fi
	setsid sh -c '` + loop + `' "$program" "$top" </dev/null >/dev/null 2>&1 &
	echo $! >"$pidfile"
}

stop() {
	if is_running; then
		kill -TERM "-$pid"
		# The agent takes five seconds at most, and then is killed.
		for i in 1 2 3 4 5 6 7 8 9 10; do
			kill -0 "-$pid" 2>/dev/null || break
			sleep 1
		done
		kill -KILL "-$pid" 2>/dev/null
	fi
	rm -f "$pidfile"
}

case "$1" in
start) start ;;
stop) stop ;;
restart | force-reload) stop && start ;;
status)
	if is_running; then
		echo "Running"
	else
		echo "Stopped"
		exit 3
	fi
	;;
*)
	echo "Usage: $0 {start|stop|restart|status}"
	exit 2
	;;
esac
`
}

func shellWord(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
