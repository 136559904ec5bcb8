package daemon

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/muster-fleet/muster/agent/config"
	"github.com/muster-fleet/muster/agent/host"
	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/watcher/probe"
)

// opReport labels what a check-in reads from the disk.
const opReport = "report"

// setUpgrade sets the reported state of the upgrade.
func (d *daemon) setUpgrade(u agentapi.UpgradeDetails, progress bool) {
	d.mu.Lock()
	switch {
	case u.State == agentapi.UpgradeRequested:
		d.badSources = nil
	case u.State == agentapi.UpgradeDownloading && u.Metadata.RetryErrorMsg == "":
		u.Metadata.RetryErrorMsg = badSources(d.badSources)
	}
	d.upgrade = &u
	d.mu.Unlock()
	if progress {
		d.changes.Progress()
		return
	}
	log := d.log.With("state", u.State, "version", u.TargetVersion)
	if u.Metadata.ErrorMsg != "" {
		log = log.With("error", u.Metadata.ErrorMsg)
	}
	log.Info("upgrade")
	d.changes.Urgent()
}

// sourceFailed logs and reports that a source of packages has failed, although the package may come from
// the next one: a site whose mirror is broken would load over its WAN, and nobody would know.
func (d *daemon) sourceFailed(source string, err error) {
	d.mu.Lock()
	known := d.badSources[source] == err.Error()
	d.failedSources = withSource(d.failedSources, source, err.Error())
	if !known && len(d.badSources) < agentapi.MaxFailedSources {
		if d.badSources == nil {
			d.badSources = map[string]string{}
		}
		d.badSources[source] = err.Error()
	}
	d.mu.Unlock()
	if !known {
		d.log.Warn("a source of packages has failed, and the next one is asked", "from", source, "error", err)
		d.changes.Urgent()
	}
}

// withSource returns the list with a source that has failed, once for each package.
func withSource(list []agentapi.FailedSource, source, why string) []agentapi.FailedSource {
	if slices.ContainsFunc(list, func(f agentapi.FailedSource) bool { return f.Package == source }) {
		return list
	}
	list = append(slices.Clone(list), agentapi.FailedSource{Package: source, Reason: shortened(why)})
	return list[max(0, len(list)-agentapi.MaxFailedSources):]
}

// shortened returns a text of at most maxProblem bytes.
func shortened(text string) string {
	if len(text) <= maxProblem {
		return text
	}
	return strings.ToValidUTF8(text[:maxProblem], "") + "…"
}

// badSources returns a sentence about the sources that have failed, or "".
func badSources(list map[string]string) string {
	var parts []string
	for _, source := range slices.Sorted(maps.Keys(list)) {
		parts = append(parts, source+": "+list[source])
	}
	if len(parts) == 0 {
		return ""
	}
	return shortened("this source has failed, and the next one is asked: " + strings.Join(parts, "; "))
}

func (d *daemon) clearUpgrade() {
	d.mu.Lock()
	d.upgrade = nil
	d.mu.Unlock()
	d.changes.Urgent()
}

func (d *daemon) currentUpgrade() *agentapi.UpgradeDetails {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.upgrade == nil {
		return nil
	}
	u := *d.upgrade
	return &u
}

// health returns the answer of the control socket.
func (d *daemon) health() probe.Health {
	h := probe.Health{
		Identity: d.Running.Identity, Home: d.Running.Home, PID: d.PID, StartedAt: d.started,
		Checks: d.selfChecks(), Workloads: d.workloadHealth(), Rollbacks: d.knownRollbacks(), Versions: d.knownVersions(),
	}
	h.State, h.Message = d.self(h.Checks)
	if state, message := d.workloads.Health(); h.State == probe.Healthy {
		h.State, h.Message = state, message
	}
	if d.Identity != nil {
		h.AgentID = d.Identity.AgentID
		h.Fleet = d.loop.Fleet(time.Now())
	}
	h.Upgrade, h.Staging = probed(d.currentUpgrade()), probed(d.currentStage())
	return h
}

func probed(u *agentapi.UpgradeDetails) *probe.Upgrade {
	if u == nil {
		return nil
	}
	return &probe.Upgrade{
		ActionID: u.ActionID, TargetVersion: u.TargetVersion, State: string(u.State), Phase: u.Metadata.Phase,
		Percent: u.Metadata.DownloadPercent, BytesPerSecond: float64(u.Metadata.DownloadRate),
		Message: upgradeMessage(u.Metadata),
	}
}

func upgradeMessage(m agentapi.UpgradeMetadata) string {
	switch {
	case m.ErrorMsg != "":
		return m.ErrorMsg
	case m.ScheduledAt != nil && m.RetryErrorMsg != "":
		return fmt.Sprintf("retry %d at %s: %s", m.RetryAttempt, m.ScheduledAt.UTC().Format(time.RFC3339), m.RetryErrorMsg)
	case m.ScheduledAt != nil:
		return "scheduled for " + m.ScheduledAt.UTC().Format(time.RFC3339)
	case m.RetryErrorMsg != "":
		return m.RetryErrorMsg
	}
	return m.Reason
}

// self returns the state of the agent without its components. A server that cannot be
// reached does not change it, since that is no fault of this version.
func (d *daemon) self(failing []probe.Check) (probe.State, string) {
	for _, c := range failing {
		if c.AtFault {
			return probe.Failed, fmt.Sprintf("%s (since %s)", c.Problem, c.Since.UTC().Format(time.RFC3339))
		}
	}
	switch {
	case d.Identity == nil:
		return probe.Degraded, "this host is not enrolled"
	case d.queue.Unenrolled():
		return probe.Degraded, "the server has unenrolled this agent, which asks once a day whether it is wanted back: enrol the host again, or restore the agent at the server"
	case len(failing) > 0:
		return probe.Degraded, failing[0].Problem
	case d.Identity.EnrolledElsewhere(d.Host.ID):
		// Not degraded: a machine that has got a new id is well.
		return probe.Healthy, "this machine has another id than the one it was enrolled on: if it is a copy, run muster-agent enroll and restart the agent; otherwise set host.on_new_machine_id: accept in agent.yml"
	}
	return probe.Healthy, ""
}

// maxProblem bounds what a message quotes of an error, in bytes: a file may have many errors.
const maxProblem = 500

// settingsCheck is the last check of the configuration on the disk.
type settingsCheck struct {
	file    fs.FileInfo // nil: there was none
	problem error
	read    bool // at least once by this process, valid or not
}

// checkSettings reads the configuration again if its file has changed, or could not be read. It takes effect at the
// next start; until then somebody can correct it.
func (d *daemon) checkSettings() {
	file, err := disk.Stat(d.Disk, opReport, layout.Path(d.Top, layout.ConfigFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return // nothing new is known
	}
	d.mu.Lock()
	was := d.settings
	d.mu.Unlock()
	if err != nil {
		file = nil
	}
	if file != nil && was.file != nil && file.ModTime().Equal(was.file.ModTime()) && file.Size() == was.file.Size() && !unreadable(was.problem) {
		return
	}
	check := settingsCheck{file: file}
	if file != nil {
		_, check.problem = config.Load(d.Disk, d.Top)
	}
	check.read = was.read || !unreadable(check.problem)
	d.mu.Lock()
	defer d.mu.Unlock()
	if check.problem != nil && (d.settings.problem == nil || check.problem.Error() != d.settings.problem.Error()) {
		d.log.Error("the configuration on the disk is not valid; the agent goes on with the one that it read last", "error", check.problem)
	}
	d.settings = check
}

// checkDisk checks that this host can write to its disk, without which it cannot store what the next
// answer orders. The check-in itself needs no disk. On every system the daemon's data folder is there.
func (d *daemon) checkDisk() {
	d.checkingDisk.Lock() // the file has one name
	defer d.checkingDisk.Unlock()
	err := disk.CheckWritable(d.Disk, opReport, layout.Path(d.Top, layout.WriteCheckFile))
	d.mu.Lock()
	was := d.unwritable
	d.unwritable = err
	d.mu.Unlock()
	switch {
	case err != nil && was == nil:
		d.log.Error("this host cannot write to its disk", "error", err)
	case err == nil && was != nil:
		d.log.Info("this host can write to its disk again")
	}
}

// maxJump is by how much the clock may differ from this process's own count between two check-ins before
// the times that it reports are computed again: clocks are corrected by seconds.
const maxJump = time.Minute

// checkClock has the windows of the versions reported again if the clock was set, since the time until which
// they are kept is one of the clock.
func (d *daemon) checkClock(now time.Time) {
	d.mu.Lock()
	last := d.clock
	d.clock = now
	d.mu.Unlock()
	if last.IsZero() {
		return
	}
	if jump := now.Round(0).Sub(last.Round(0)) - now.Sub(last); jump.Abs() < maxJump {
		return
	}
	d.log.Warn("the clock of this host was set")
	select {
	case d.recheck <- struct{}{}:
	default: // it is pending
	}
}

// report returns the next check-in.
func (d *daemon) report() agentapi.CheckinRequest {
	d.checkSettings()
	d.checkDisk()
	d.checkClock(time.Now())
	h, components := d.health(), d.workloads.Reports()
	r := agentapi.CheckinRequest{
		Status:         wireStatus(h.State),
		Message:        cmp.Or(h.Message, defaultMessages[h.State]),
		AckToken:       d.queue.AckToken(),
		LocalMeta:      d.metadata(),
		Components:     wireComponents(components),
		PollTimeout:    d.Config.Checkin.PollTimeout.String(),
		UpgradeDetails: d.wireUpgrade(),
		Upgrade:        offered(h.Rollbacks),
	}
	if d.Muster {
		d.mu.Lock()
		r.Upgrade.FailedSources = d.failedSources // never changed in place
		d.mu.Unlock()
		r.StagedVersions = d.stagedVersions()
		r.UpgradesIdle = d.idle(r.UpgradeDetails, components)
		r.Instance = &agentapi.Instance{BootID: d.Host.BootID, ProcessID: d.processID}
	}
	r.AgentPolicyID, r.PolicyRevisionIdx = d.queue.Policy()
	r.AwaitsAnswer = d.workloads.AwaitsServer()
	return r
}

// idle reports whether nothing is left to do or to say of any upgrade; reported is that of the
// agent, and components have theirs. The gateway starts when the journal and the queue have been read.
func (d *daemon) idle(reported *agentapi.UpgradeDetails, components []agentapi.Component) bool {
	over := func(u *agentapi.UpgradeDetails) bool { return u == nil || u.State.Ended() }
	return d.queue.Idle() && d.watched() == nil && over(reported) &&
		!slices.ContainsFunc(components, func(c agentapi.Component) bool { return !over(c.UpgradeDetails) })
}

// defaultMessages are the messages of states that have none. Fleet Servers require one.
var defaultMessages = map[probe.State]string{
	probe.Healthy: "Running", probe.Starting: "Starting", probe.Stopping: "Stopping", probe.Degraded: "Degraded", probe.Failed: "Failed",
}

// metadata returns local_metadata, with the version of this agent whatever User-Agent names.
func (d *daemon) metadata() []byte {
	return d.Host.Metadata(host.Agent{
		ID: d.Identity.AgentID, Version: d.Running.FullVersion(), Snapshot: d.Running.Snapshot,
		Build: d.Running.Identity.String(), LogLevel: logLevel(d.logLevel()), FreeBytes: d.freeBytes(),
	})
}

// freeBytes returns the free space that the check before an upgrade compares with the package's
// need. It is nil if that is not known, and for Fleet Servers, which do not ask for it.
func (d *daemon) freeBytes() *int64 {
	if !d.Muster {
		return nil
	}
	free, err := d.Disk.Free(opReport, layout.Path(d.Top, layout.DataDir))
	if err != nil {
		return nil // the upgrade reports it
	}
	return &free
}

// wireUpgrade returns the upgrade to report. A Fleet Server may fail a check-in whose upgrade
// has an action that it does not know, such as one that was requested on the host.
func (d *daemon) wireUpgrade() *agentapi.UpgradeDetails {
	u := d.currentUpgrade()
	if u != nil && u.ActionID == "" && !d.Muster {
		return nil
	}
	return u
}

func wireStatus(s probe.State) string {
	switch s {
	case probe.Healthy:
		return "online"
	case probe.Starting:
		return "starting"
	case probe.Degraded, probe.Stopping:
		return "degraded"
	}
	return "error"
}

func wireComponents(list []agentapi.Component) json.RawMessage {
	b, err := json.Marshal(append([]agentapi.Component{}, list...))
	if err != nil {
		panic("daemon: strings cannot fail to encode: " + err.Error())
	}
	return b
}

func logLevel(l slog.Level) string { return strings.ToLower(l.String()) }
