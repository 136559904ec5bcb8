package services

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

const (
	// askTimeout bounds a query to systemd, which answers in milliseconds.
	askTimeout = 5 * time.Second
	// stopTimeout is above the unit's TimeoutStopSec, after which systemd kills.
	stopTimeout = 30 * time.Second
)

var (
	// ErrNoUnit is returned if the host does not run systemd or has no unit for the
	// watcher. The caller then starts the watcher as a process.
	ErrNoUnit = errors.New("no unit of systemd for the watcher")
	// ErrNothingToWatch is returned if there is no marker.
	ErrNothingToWatch = errors.New("the watcher was not started: there is no upgrade marker")
)

// Systemctl runs systemctl with arguments and returns its standard output.
type Systemctl func(ctx context.Context, args ...string) (string, error)

// Watcher is a watcher that runs as a systemd unit.
type Watcher struct {
	unit string
	pid  int
	ctl  Systemctl
}

// StartWatcher starts the unit of the watcher of the agent's service, and returns when it
// watches. If it does not watch before ctx ends the unit is stopped again, so that the
// caller may start a watcher in another way.
func StartWatcher(ctx context.Context, agent string) (*Watcher, error) {
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		return nil, fmt.Errorf("%w: this host does not run systemd", ErrNoUnit)
	}
	return start(ctx, RunSystemctl, WatcherName(agent)+".service")
}

func start(ctx context.Context, ctl Systemctl, unit string) (*Watcher, error) {
	w := &Watcher{unit: unit, ctl: ctl}
	before, err := w.show(ctx)
	if err != nil {
		return nil, err
	}
	if s := before["LoadState"]; s != "loaded" {
		return nil, fmt.Errorf("%w: %s is %s", ErrNoUnit, unit, s)
	}
	// restart and not start, because start succeeds for a watcher of an earlier
	// marker that is about to exit.
	_, startErr := ctl(ctx, "restart", unit)
	if startErr != nil && ctx.Err() != nil {
		return nil, errors.Join(fmt.Errorf("%s did not watch in time: %w", unit, context.Cause(ctx)), w.Stop(context.WithoutCancel(ctx)))
	}
	after, err := w.show(ctx)
	if err != nil {
		return nil, errors.Join(startErr, err, w.Stop(context.WithoutCancel(ctx)))
	}
	switch {
	case after["ActiveState"] == "active":
		w.pid, _ = strconv.Atoi(after["MainPID"])
		return w, nil
	case startErr == nil && after["ConditionResult"] == "no":
		return nil, fmt.Errorf("%s: %w", unit, ErrNothingToWatch)
	case startErr == nil:
		startErr = fmt.Errorf("%s has ended (%s)", unit, after["Result"])
	}
	// systemd would start the unit again and again, and compete with a watcher
	// that is started in another way.
	return nil, errors.Join(startErr, w.Stop(context.WithoutCancel(ctx)))
}

// PID returns the watcher's process id, 0 if it has exited.
func (w *Watcher) PID() int { return w.pid }

// Stop stops the unit and waits for its process to exit, at most until ctx ends.
func (w *Watcher) Stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	_, err := w.ctl(ctx, "stop", w.unit)
	return err
}

// Running reports whether a systemd service runs, starts or stops.
func Running(service string) (bool, error) {
	state, err := activeState(service)
	return state != "inactive" && state != "failed", err
}

// Forget clears systemd's failed state of a removed service, which it would list until
// the next boot.
func Forget(service string) error {
	state, err := activeState(service)
	if err != nil || state != "failed" {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	_, err = RunSystemctl(ctx, "reset-failed", service+".service")
	return err
}

func activeState(service string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	state, err := RunSystemctl(ctx, "show", "--property=ActiveState", "--value", service+".service")
	return strings.TrimSpace(state), err
}

func (w *Watcher) show(ctx context.Context) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	out, err := w.ctl(ctx, "show", "--property=LoadState,ActiveState,MainPID,ConditionResult,Result", w.unit)
	if err != nil {
		return nil, err
	}
	properties := map[string]string{}
	for line := range strings.Lines(out) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			properties[name] = value
		}
	}
	return properties, nil
}

// RunSystemctl runs systemctl on this host. It prints times in UTC.
func RunSystemctl(ctx context.Context, args ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	c := exec.CommandContext(ctx, "systemctl", append([]string{"--no-ask-password"}, args...)...)
	c.Env = append(os.Environ(), "TZ=UTC")
	c.Stdout, c.Stderr = &stdout, &stderr
	c.WaitDelay = time.Second
	if err := c.Run(); err != nil {
		return "", fmt.Errorf("systemctl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}
