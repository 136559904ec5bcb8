// Package daemon is the running agent. Package main runs it with the options of the real
// machine ([Installed]). A test runs it with its own connections, disks and processes,
// thousands of them in one process, since the package has no state of its own.
//
// The gateway adds actions to the queue; the upgrade loop takes them from there and runs
// the executor; the watch loop reads the files that the watcher writes; the version loop checks
// the versions on the host; the stage loop runs stages. All of them change the report of the
// next check-in and of the control socket.
package daemon

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/muster-fleet/muster/agent/backoff"
	"github.com/muster-fleet/muster/agent/component"
	"github.com/muster-fleet/muster/agent/config"
	"github.com/muster-fleet/muster/agent/control"
	"github.com/muster-fleet/muster/agent/download"
	"github.com/muster-fleet/muster/agent/gateway"
	"github.com/muster-fleet/muster/agent/host"
	"github.com/muster-fleet/muster/agent/identity"
	"github.com/muster-fleet/muster/agent/queue"
	"github.com/muster-fleet/muster/agent/request"
	"github.com/muster-fleet/muster/agent/runtime"
	"github.com/muster-fleet/muster/agent/upgrade"
	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/packaging/pkg/trust"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/watcher/handoff"
	"github.com/muster-fleet/muster/watcher/probe"
)

const (
	// StopTimeout bounds the shutdown of the agent. Service managers kill after ten
	// seconds at the earliest.
	StopTimeout = 5 * time.Second
	// flushTimeout is how long a restart waits for the phase to be reported.
	flushTimeout = time.Second
)

// Options holds everything that an agent depends on.
type Options struct {
	// Top is the host's top folder, absolute.
	Top string
	// Links is the folder of the pointer and the watcher's link if it is not Top; see
	// [layout.Roots].
	Links string
	// Running is the version of this process. An empty Home means a development
	// build, which was not installed from a package and cannot upgrade.
	Running handoff.Install
	// GOOS and GOARCH determine which packages fit.
	GOOS, GOARCH string
	PID          int
	Config       config.Config
	// Identity is nil on a host that is not enrolled: the agent then only serves
	// its control socket.
	Identity *identity.Identity
	Host     host.Info
	Disk     disk.Disk
	// HTTP is the client for the agent's own server, Other that for all other
	// package sources.
	HTTP, Other *http.Client
	// Switch is the transport of HTTP if the agent may be moved to another server by its
	// policy; nil keeps it.
	Switch *gateway.Switch
	// Muster means that the server is Muster's; see [gateway.Loop].
	Muster bool
	// Trust decides which packages may be installed; nil refuses all.
	Trust trust.Authority
	// Control is the control socket, or nil. Run closes it.
	Control net.Listener
	// Listen makes the control socket if Control is nil; it is called until it succeeds. nil: there is
	// none.
	Listen func() (net.Listener, error)
	// Lock acquires the lock file at path without waiting, and writes content into
	// it unless that is empty. It returns ErrLocked if another process holds it.
	Lock     func(path, content string) (release func() error, err error)
	Watchers upgrade.Watchers
	// Startable returns an error if an agent's program does not start; nil skips
	// the check.
	Startable func(ctx context.Context, program string) error
	// CheckStart asks an agent's program whether it would start under Top; nil skips the check.
	// See [upgrade.Programs.CheckStart].
	CheckStart func(ctx context.Context, program, top string) error
	// Exec replaces this process by the version the pointer leads to. It returns
	// only if that fails. A test's Exec returns nil; then Run returns ErrReplaced.
	Exec func() error
	// Stopped counts an orderly stop of the agent while it is watched; see [handoff.CountStop]. nil: nobody
	// counts them.
	Stopped func() error
	// Reap collects the exit status of a child that was started before this
	// process was re-executed; nil if there can be none.
	Reap func(pid int) (gone bool)
	// Service is the name of the agent's service, or empty.
	Service string
	// Runtimes are how this agent runs the components of its policy, by name.
	Runtimes map[string]runtime.Adapter
	// Rand returns a number in [0,1); nil means math/rand.
	Rand func() float64
	Log  *slog.Logger
	// Level is the level of Log, or nil. A SETTINGS changes it.
	Level *slog.LevelVar
}

var (
	// ErrLocked is returned if another process holds a lock.
	ErrLocked = errors.New("another process holds the lock")
	// ErrReplaced is returned by Run if the process is to be replaced by the
	// version the pointer now leads to.
	ErrReplaced = errors.New("the agent was replaced by another version")
)

// Agent is an agent on a host.
type Agent struct {
	Options Options
}

// daemon is a running agent.
type daemon struct {
	Options
	log       *slog.Logger
	queue     *queue.Queue
	executor  *upgrade.Executor
	loop      *gateway.Loop // nil without an identity
	acks      *gateway.AckSender
	changes   *gateway.Changes
	workloads *component.Manager
	started   time.Time
	processID string // another one after each start

	// stop ends the agent; Run returns its cause.
	stop context.CancelCauseFunc

	mu       sync.Mutex
	upgrade  *agentapi.UpgradeDetails // as reported, or nil
	staging  *agentapi.UpgradeDetails // the stage that runs, or the last one if it failed
	watching chan struct{}            // closed when the watch ends; nil if there is none
	// answered is closed once the server has answered a check-in of this process; see answerOnce.
	answered   chan struct{}
	answerOnce sync.Once
	// versions are those on the host, and rollbacks those it can be rolled back to, as last
	// checked.
	versions  []probe.Version
	rollbacks []probe.Rollback

	// settings is whether the configuration on the disk is valid; see checkSettings.
	settings settingsCheck
	// unwritable is why this host cannot write to its disk, or nil; see checkDisk.
	unwritable   error
	checkingDisk sync.Mutex
	// queueProblem is why the queue cannot be written, or nil, and failing are the checks of the agent by
	// itself that fail; see selfcheck.go.
	queueProblem error
	failing      []probe.Check
	// badSources are the sources of packages that have failed since the last upgrade began, with the
	// reason; see sourceFailed.
	badSources map[string]string
	// failedSources are the last ones since the agent started, as they are reported.
	failedSources []agentapi.FailedSource
	// clock is the time of the last check-in; see checkClock.
	clock time.Time

	// stages has the stages that were accepted and do not run yet: a subject has one at most.
	stages chan request.Request
	// stageAction is the action of the stage that the server has ordered and that is under way, and
	// cancelStageAction ends it; guarded by mu.
	stageAction       string
	cancelStageAction context.CancelCauseFunc
	// interrupted is the stage that the server has ordered and that an earlier process left
	// unfinished, which counts how often that happened.
	interrupted request.Request
	// recheck has an element if the versions are to be checked again.
	recheck  chan struct{}
	checking sync.Mutex
	intact   map[handoff.Install]bool // whose files were read; guarded by checking
}

// Run runs the agent until ctx ends, and returns nil then.
func (a Agent) Run(ctx context.Context) error {
	d, err := a.build()
	if err != nil {
		return err
	}
	if d.Control != nil {
		defer d.Control.Close()
	}
	release, err := d.Lock(layout.Path(d.Top, layout.AgentLockFile), strconv.Itoa(d.PID)+"\n")
	if errors.Is(err, ErrLocked) {
		return fmt.Errorf("another agent already runs from %s: %w", d.Top, err)
	}
	if err != nil {
		return err
	}
	ctx, d.stop = context.WithCancelCause(ctx)
	defer d.stop(nil)
	if err = d.run(ctx); err == nil && d.watched() != nil && d.Stopped != nil {
		// What is watched is no crash loop if it ends because it was asked to.
		if serr := d.Stopped(); serr != nil {
			d.log.Warn("an orderly stop was not counted, so the watcher counts it as a crash", "error", serr)
		}
	}
	return errors.Join(err, release())
}

func (a Agent) build() (*daemon, error) {
	o := a.Options
	d := &daemon{
		Options: o, log: o.Log, changes: &gateway.Changes{}, started: time.Now(),
		stages: make(chan request.Request, 1+agentapi.MaxComponents), recheck: make(chan struct{}, 1),
		answered: make(chan struct{}), processID: strings.ToLower(rand.Text()),
	}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	d.versions = []probe.Version{d.runningVersion()}
	d.checkSettings()
	agentID := ""
	if o.Identity != nil {
		agentID = o.Identity.AgentID
	}
	var err error
	d.queue, err = queue.Open(o.Disk, queue.Path(d.stateHome()), agentID)
	if errors.Is(err, disk.ErrDamaged) {
		d.log.Warn("the queue was unreadable and starts empty; the server sends again what was not confirmed", "error", err)
	} else if err != nil {
		return nil, err
	}
	d.buildGateway()
	d.buildExecutor()
	d.buildWorkloads()
	return d, nil
}

// stateHome returns the folder that holds run/: the versioned home, or for a development
// build a folder under data.
func (d *daemon) stateHome() string {
	home := d.Running.Home
	if home == "" {
		home = layout.DevelopmentDir
	}
	return layout.Path(d.Top, home)
}

func (d *daemon) serverURL() string {
	switch {
	case d.Config.Server.URL != "":
		return d.Config.Server.URL
	case d.Identity != nil:
		return d.Identity.ServerURL
	}
	return ""
}

func (d *daemon) client() *gateway.Client {
	c := &gateway.Client{
		HTTP: d.HTTP, URL: d.serverURL(),
		AgentID: d.Identity.AgentID, APIKey: d.Identity.APIKey, Version: d.Running.FullVersion(),
	}
	if !d.Muster {
		c.NamedVersion = d.Config.Server.UserAgentVersion
	}
	return c
}

func (d *daemon) buildGateway() {
	if d.Identity == nil {
		return
	}
	client := d.client()
	d.loop = &gateway.Loop{
		Server: client, Muster: d.Muster, Report: d.report, Deliver: d.deliver, Changes: d.changes,
		Answered: func() { d.answerOnce.Do(func() { close(d.answered) }) },
		URL:      client.Address, Rand: d.Rand, Log: d.log,
	}
	d.acks = &gateway.AckSender{Server: client, Outbox: d.queue, Rand: d.Rand, Log: d.log}
}

func (d *daemon) buildExecutor() {
	fetcher := &download.Fetcher{
		Disk: d.Disk, RateLimit: d.Config.Upgrade.Download.RateLimit, Rand: d.Rand, Failed: d.sourceFailed,
		Source: download.Source{
			Other: d.Other, UserAgent: "Muster Agent v" + d.Running.FullVersion(), AllowHTTP: d.Config.Upgrade.Download.AllowHTTP,
		},
	}
	d.executor = &upgrade.Executor{
		Disk: d.Disk, Top: d.Top, Links: d.Links, GOOS: d.GOOS, GOARCH: d.GOARCH, Running: d.Running,
		Trust: d.Trust, Downloader: fetcher, Watchers: d.Watchers, Startable: d.Startable,
		CheckStart: d.CheckStart, ReadsStart: func() error { return CheckStart(d.Disk, d.Top) },
		Sources: d.sources(), Keep: d.Config.Upgrade.Limits(),
		Rules: d.Config.Upgrade.Watch.Rules(), Restart: handoff.Restart{Service: d.Service}, Before: d.before,
		PolicySource: func() string { return d.queue.Settings().SourceURI },
		PauseStops:   func(ctx context.Context) (func(), error) { return d.workloads.PauseStops(ctx) }, // they are built later
		Reexec:       d.reexecAs, Report: d.setUpgrade, Staging: d.setStaging, Log: d.log,
	}
	if d.Identity != nil {
		client := d.client()
		fetcher.Source.Own, fetcher.Source.Origin, fetcher.Source.Authorize = d.HTTP, client.URL, client.Authorize
		d.executor.Sources = append(d.executor.Sources, client.URL+agentapi.PathArtifacts)
	}
}

// sources returns the package sources beside the server: first the host's drop folder.
func (d *daemon) sources() []string {
	drop := url.URL{Scheme: "file", Path: filepath.ToSlash(layout.Path(d.Top, layout.DropDir))}
	return append([]string{drop.String()}, d.Config.Upgrade.Download.Sources...)
}

// run recovers from the state of an earlier process, and then runs the parts until ctx
// ends.
func (d *daemon) run(ctx context.Context) error {
	d.log.Info("agent starts", "version", d.Running.Identity.String(), "home", d.Running.Home, "top", d.Top,
		"development_build", d.Running.Home == "")
	watcherPID, err := d.recover()
	if err != nil && !disk.IsUnwritable(err) {
		return err
	}
	unrecovered := err

	var parts sync.WaitGroup
	if d.Control != nil || d.Listen != nil {
		parts.Go(func() { d.serveControl(ctx) })
	}
	d.checkSelf() // before the first report
	parts.Go(func() { d.watchSelf(ctx) })
	if d.loop != nil {
		parts.Go(func() { d.connect(ctx) })
	}
	parts.Go(func() { d.runWorkloads(ctx) })
	parts.Go(func() {
		// Before the last upgrade is recovered, no other one begins and no version is removed.
		if unrecovered != nil {
			watcherPID = d.recoverAgain(ctx, unrecovered)
		}
		parts.Go(func() { d.watchVersions(ctx) })
		parts.Go(func() { d.upgrades(ctx) })
		parts.Go(func() { d.watchMarker(ctx, watcherPID) })
		parts.Go(func() { d.runStages(ctx) })
	})

	<-ctx.Done()
	if !waitAtMost(&parts, StopTimeout) {
		d.log.Warn("not every part of the agent ended in time", "timeout", StopTimeout.String())
	}
	d.workloads.Detach()
	if cause := context.Cause(ctx); errors.Is(cause, ErrReplaced) {
		return cause
	}
	d.log.Info("agent stops")
	return nil
}

func waitAtMost(w *sync.WaitGroup, limit time.Duration) bool {
	done := make(chan struct{})
	go func() {
		w.Wait()
		close(done)
	}()
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-done:
		return true
	case <-t.C:
		return false
	}
}

// recover takes up what an earlier process has left. After an error it can be called again; the state of
// the last upgrade is reported in any case.
func (d *daemon) recover() (watcherPID int, err error) {
	watcherPID, err = d.recoverJournal()
	if err == nil {
		d.recoverStage()
	}
	d.recoverStart()
	d.recoverPending()
	if err == nil {
		d.dropSurplus()
	}
	return watcherPID, err
}

// recoverAgain recovers once the disk can be written. err is why that has failed before.
func (d *daemon) recoverAgain(ctx context.Context, err error) (watcherPID int) {
	for {
		d.log.Error("an earlier upgrade is not recovered yet", "error", err, "again_in", queueRetry.String())
		if backoff.Sleep(ctx, queueRetry) != nil {
			return 0
		}
		if watcherPID, err = d.recover(); err == nil {
			return watcherPID
		}
	}
}

// listen returns the control socket, or nil if ctx ends before the disk can be written. The check-in
// needs no socket.
func (d *daemon) listen(ctx context.Context) net.Listener {
	for said := ""; d.Control == nil; {
		l, err := d.Listen()
		if err == nil {
			d.log.Info("the control socket is served")
			return l
		}
		if text := err.Error(); text != said {
			said = text
			d.log.Error("the control socket cannot be made yet: commands on this host do not reach the agent", "error", err, "again_in", queueRetry.String())
		}
		if backoff.Sleep(ctx, queueRetry) != nil {
			return nil
		}
	}
	return d.Control
}

func (d *daemon) serveControl(ctx context.Context) {
	l := d.listen(ctx)
	if l == nil {
		return
	}
	defer l.Close()
	s := &control.Server{Health: d.health, Upgrade: d.acceptLocal, Stage: d.acceptStage, Remove: d.removeVersion, Release: d.releaseComponent, Logs: d.workloads.Logs, History: d.workloads.History, Log: d.log}
	if err := s.Serve(ctx, l); err != nil {
		d.log.Error("the control socket is not served", "error", err)
	}
}

// runGateway runs what talks to the server, or follows it, until ctx ends, or the server
// has unenrolled this agent and received the acknowledgement.
func (d *daemon) runGateway(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var parts sync.WaitGroup
	parts.Go(func() { d.loop.Run(ctx) })
	parts.Go(func() { d.acks.Run(ctx) })
	parts.Go(func() { d.diagnose(ctx) })
	parts.Go(func() { d.runOrderedStages(ctx) })
	parts.Go(func() { d.followSettings(ctx) })
	parts.Go(func() { d.followHosts(ctx) })
	for ctx.Err() == nil {
		changed := d.queue.Changed()
		if d.queue.Unenrolled() && len(d.queue.Acks(1)) == 0 {
			d.log.Warn("the server has unenrolled this agent; it asks once a day whether it is wanted back")
			cancel()
			break
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
	parts.Wait()
}

// deliver stores an answer of the server.
func (d *daemon) deliver(resp agentapi.CheckinResponse) error {
	for _, a := range resp.Actions {
		d.log.Info("action received", "action", a.ID, "type", a.Type)
	}
	return d.queue.Accept(resp.Actions, resp.AckToken, time.Now(), d.cancelUpgrade)
}

// reexecAs replaces this process by the version in home.
func (d *daemon) reexecAs(ctx context.Context, r request.Request, home string) error {
	flush, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	if d.loop != nil && d.changes.Flush(flush) != nil {
		d.log.Info("the restart was not reported to the server in time; the new version reports it")
	}
	d.workloads.Detach()
	err := d.queue.Switch(r.ID, func() error {
		// The state has changed since the step that copied it.
		if err := disk.CopyTree(ctx, d.Disk, "queue snapshot", filepath.Join(d.stateHome(), layout.RunDir), filepath.Join(home, layout.RunDir)); err != nil {
			return err
		}
		d.log.Info("agent restarts as another version", "version", r.Version)
		return d.Exec()
	})
	if err != nil {
		d.workloads.Resume(ctx)
	}
	return err
}

func (d *daemon) backoff(base time.Duration) *backoff.Backoff {
	return &backoff.Backoff{Base: base, Rand: d.Rand}
}
