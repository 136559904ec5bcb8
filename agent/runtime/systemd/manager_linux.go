package systemd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"

	"github.com/muster-fleet/muster/agent/runtime"
	"github.com/muster-fleet/muster/agent/services"
)

// aliveInterval is how often a job that is waited for looks whether the connection still
// exists: a broken one does not report that the job has ended.
const aliveInterval = time.Second

// connect connects to systemd.
func connect(ctx context.Context) (manager, error) {
	// As sd_booted(3).
	if _, err := os.Lstat("/run/systemd/system"); err != nil {
		return nil, fmt.Errorf("%w: it does not run systemd", runtime.ErrUnavailable)
	}
	conn, err := dbus.NewSystemConnectionContext(ctx)
	if err == nil {
		return bus{conn}, nil
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("connect to systemd: %w", context.Cause(ctx))
	}
	if _, missing := exec.LookPath("systemctl"); missing != nil {
		return nil, fmt.Errorf("%w: neither D-Bus nor systemctl can be used to reach systemd: %w; %w", runtime.ErrUnavailable, err, missing)
	}
	return systemctl{}, nil
}

// bus is systemd over D-Bus.
type bus struct{ conn *dbus.Conn }

func (b bus) close() { b.conn.Close() }

func (b bus) show(ctx context.Context, unit string) (state, error) {
	p, err := b.conn.GetAllPropertiesContext(ctx, unit)
	if err != nil {
		return state{}, err
	}
	s := state{
		names: get[[]string](p, "Names"), load: get[string](p, "LoadState"), file: get[string](p, "FragmentPath"),
		active: get[string](p, "ActiveState"), sub: get[string](p, "SubState"), result: get[string](p, "Result"),
		pid: int(get[uint32](p, "MainPID")), restarts: int(get[uint32](p, "NRestarts")),
		exitCode: int(get[int32](p, "ExecMainCode")), exitStatus: int(get[int32](p, "ExecMainStatus")),
		changed:   get[bool](p, "NeedDaemonReload"),
		unmet:     !get[bool](p, "ConditionResult") && get[uint64](p, "ConditionTimestamp") != 0,
		canReload: get[bool](p, "CanReload"),
	}
	if at := get[uint64](p, "ExecMainStartTimestamp"); at != 0 {
		s.started = time.UnixMicro(int64(at))
	}
	// Structures: (name, text) and (id, path).
	if e := get[[]any](p, "LoadError"); len(e) == 2 {
		s.loadError, _ = e[1].(string)
	}
	if job := get[[]any](p, "Job"); len(job) == 2 {
		id, _ := job[0].(uint32)
		s.job = id != 0
	}
	return s, nil
}

// get returns a property, or the zero value if systemd is too old to have it.
func get[T any](properties map[string]any, name string) T {
	v, _ := properties[name].(T)
	return v
}

func (b bus) job(ctx context.Context, verb, unit string) (string, error) {
	call := map[string]func(context.Context, string, string, chan<- string) (int, error){
		"start": b.conn.StartUnitContext, "stop": b.conn.StopUnitContext, "reload": b.conn.ReloadUnitContext,
	}[verb]
	result := make(chan string, 1)
	if _, err := call(ctx, unit, "replace", result); err != nil {
		return "", err
	}
	alive := time.NewTicker(aliveInterval)
	defer alive.Stop()
	for {
		select {
		case r := <-result:
			return r, nil
		case <-ctx.Done():
			return "", context.Cause(ctx)
		case <-alive.C:
			if ctx.Err() != nil { // which ends the connection as well
				return "", context.Cause(ctx)
			}
			if !b.conn.Connected() {
				return "", fmt.Errorf("%w: the connection to systemd broke while it was waited for", runtime.ErrTransient)
			}
		}
	}
}

func (b bus) resetFailed(ctx context.Context, unit string) error {
	return b.conn.ResetFailedUnitContext(ctx, unit)
}

func (b bus) reload(ctx context.Context) error {
	if err := b.conn.ReloadContext(ctx); err != nil {
		return fmt.Errorf("have systemd read its units: %w", err)
	}
	return nil
}

func (b bus) link(ctx context.Context, file string) error {
	_, err := b.conn.LinkUnitFilesContext(ctx, []string{file}, false, false)
	return wrap("link", file, err)
}

func (b bus) enable(ctx context.Context, file string) error {
	_, _, err := b.conn.EnableUnitFilesContext(ctx, []string{file}, false, false)
	return wrap("enable", file, err)
}

func (b bus) disable(ctx context.Context, unit string) error {
	_, err := b.conn.DisableUnitFilesContext(ctx, []string{unit}, false)
	return wrap("disable", unit, err)
}

func wrap(verb, what string, err error) error {
	if err != nil {
		return fmt.Errorf("%s %s: %w", verb, what, err)
	}
	return nil
}

// systemctl is systemd through systemctl, which has a connection of its own to systemd.
type systemctl struct{}

func (systemctl) close() {}

func (systemctl) show(ctx context.Context, unit string) (state, error) {
	out, err := services.RunSystemctl(ctx, "show", "--property="+
		"Names,LoadState,LoadError,FragmentPath,ActiveState,SubState,Job,Result,MainPID,NRestarts,"+
		"ExecMainStartTimestamp,ExecMainCode,ExecMainStatus,ConditionResult,ConditionTimestamp,CanReload,NeedDaemonReload", "--", unit)
	if err != nil {
		return state{}, err
	}
	return parseShow(out), nil
}

// parseShow reads the properties that systemctl prints. What is missing is zero.
func parseShow(out string) state {
	p := map[string]string{}
	for line := range strings.Lines(out) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		p[name] = value
	}
	number := func(name string) int {
		n, _ := strconv.Atoi(p[name])
		return n
	}
	// RunSystemctl has times printed in UTC.
	started, _ := time.Parse("Mon 2006-01-02 15:04:05 MST", p["ExecMainStartTimestamp"])
	return state{
		names: strings.Fields(p["Names"]), load: p["LoadState"], loadError: p["LoadError"], file: p["FragmentPath"],
		active: p["ActiveState"], sub: p["SubState"], job: number("Job") != 0, result: p["Result"],
		pid: number("MainPID"), restarts: number("NRestarts"), started: started,
		exitCode: number("ExecMainCode"), exitStatus: number("ExecMainStatus"),
		changed: p["NeedDaemonReload"] == "yes",
		unmet:   p["ConditionResult"] == "no" && p["ConditionTimestamp"] != "", canReload: p["CanReload"] == "yes",
	}
}

func (systemctl) job(ctx context.Context, verb, unit string) (string, error) {
	_, err := services.RunSystemctl(ctx, verb, "--", unit)
	if err != nil {
		if ctx.Err() != nil {
			err = errors.Join(context.Cause(ctx), err)
		}
		return "", err
	}
	return done, nil
}

func (systemctl) resetFailed(ctx context.Context, unit string) error {
	_, err := services.RunSystemctl(ctx, "reset-failed", "--", unit)
	return err
}

func (systemctl) reload(ctx context.Context) error {
	_, err := services.RunSystemctl(ctx, "daemon-reload")
	return err
}

func (systemctl) link(ctx context.Context, file string) error {
	_, err := services.RunSystemctl(ctx, "link", "--no-reload", "--", file)
	return err
}

func (systemctl) enable(ctx context.Context, file string) error {
	_, err := services.RunSystemctl(ctx, "enable", "--no-reload", "--", file)
	return err
}

func (systemctl) disable(ctx context.Context, unit string) error {
	_, err := services.RunSystemctl(ctx, "disable", "--no-reload", "--", unit)
	return err
}
