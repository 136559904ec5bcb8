package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/muster-fleet/muster/agent/queue"
	"github.com/muster-fleet/muster/agent/request"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/watcher/probe"
)

// removeTimeout bounds how long the removal of a component's version waits for a look at the
// component, and takes: a client waits thirty seconds.
const removeTimeout = 20 * time.Second

// acceptComponentSwitch accepts a switch of a component to a version on the host.
func (d *daemon) acceptComponentSwitch(req probe.UpgradeRequest) error {
	if !req.Rollback {
		return errors.New("component: an upgrade that is requested on the host switches to a version which is there: use `muster-agent versions switch`")
	}
	var here, found bool
	for _, v := range d.workloads.Versions(req.Component) {
		here = here || v.Version == req.Version && v.State == probe.VersionRunning
		found = found || v.Version == req.Version && v.State != probe.VersionRunning
	}
	switch {
	case found:
	case here && req.Force: // an upgrade may have been left half-way
	case here:
		return fmt.Errorf("version %s of %s is installed here already", req.Version, req.Component)
	default:
		if err := d.workloads.Known(req.Component); err != nil {
			return err
		}
		return fmt.Errorf("version %s of %s is neither staged nor kept on this host: stage it first with `muster-agent versions stage %s --component %s`", req.Version, req.Component, req.Version, req.Component)
	}
	data, err := json.Marshal(agentapi.UpgradeData{
		Version: req.Version, Force: req.Force, Rollback: true, Component: &agentapi.ComponentData{Name: req.Component},
	})
	if err != nil {
		return err
	}
	id := "local:" + uuid.NewString()
	r, err := request.Parse(id, true, data)
	if err != nil {
		return err
	}
	// Reported before the upgrade begins, so that a client which asks for the health next does
	// not see the end of an older upgrade.
	if d.queue.Waiting(req.Component) == nil {
		d.workloads.Requested(r, "")
	}
	return d.queue.AddLocal(id, data, time.Now())
}

// removeComponentVersion removes a version of a component on request of the host.
func (d *daemon) removeComponentVersion(req probe.RemoveRequest) error {
	ctx, cancel := context.WithTimeout(context.Background(), removeTimeout)
	defer cancel()
	return d.workloads.RemoveVersion(ctx, req.Component, req.Version)
}

// releaseComponent lets an upgrade in lockstep that waits for the server go on, or undoes it, or
// starts a component whose start is withheld.
func (d *daemon) releaseComponent(req probe.ReleaseRequest) error {
	if err := d.workloads.Known(req.Component); err != nil {
		return err
	}
	upgraded := slices.ContainsFunc(d.queue.Lockstep(), func(i queue.Item) bool { return i.Component() == req.Component })
	if !upgraded && !req.Undo && d.workloads.IsWithheld(req.Component) {
		ctx, cancel := context.WithTimeout(context.Background(), removeTimeout)
		defer cancel()
		if err := d.workloads.ReleaseWithheld(ctx, req.Component); err != nil {
			return err
		}
		d.log.Warn("a held component was released on this host", "component", req.Component)
		return nil
	}
	if err := d.queue.Release(req.Component, req.Undo); err != nil {
		return err
	}
	d.log.Warn("an upgrade in lockstep was released on this host", "component", req.Component, "undo", req.Undo)
	return nil
}
