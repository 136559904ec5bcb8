package audit

import (
	"context"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

// Watch returns a store that writes the entry of a call before the call changes any document that
// operators know of, unless an entry was written. If the entry cannot be written, nothing is
// changed.
func Watch(s store.Store) store.Store { return watched{s} }

type watched struct{ store.Store }

// collection records a call before its first write.
type collection[T any] struct {
	store.Collection[T]
	store store.Store
}

func (c collection[T]) Create(ctx context.Context, v T) error {
	if err := RecordCall(ctx, c.store); err != nil {
		return err
	}
	return c.Collection.Create(ctx, v)
}

func (c collection[T]) Update(ctx context.Context, v T) (int64, error) {
	if err := RecordCall(ctx, c.store); err != nil {
		return 0, err
	}
	return c.Collection.Update(ctx, v)
}

func (c collection[T]) Delete(ctx context.Context, id string) error {
	if err := RecordCall(ctx, c.store); err != nil {
		return err
	}
	return c.Collection.Delete(ctx, id)
}

func (w watched) Audit() store.Audit { return watchedTrail{w.Store.Audit()} }

func (w watched) Policies() store.Collection[fleet.Policy] {
	return collection[fleet.Policy]{w.Store.Policies(), w.Store}
}

func (w watched) FleetServerHosts() store.Collection[fleet.FleetServerHost] {
	return collection[fleet.FleetServerHost]{w.Store.FleetServerHosts(), w.Store}
}

func (w watched) DownloadSources() store.Collection[fleet.DownloadSource] {
	return collection[fleet.DownloadSource]{w.Store.DownloadSources(), w.Store}
}

func (w watched) FleetProxies() store.Collection[fleet.FleetProxy] {
	return collection[fleet.FleetProxy]{w.Store.FleetProxies(), w.Store}
}

func (w watched) Outputs() store.Collection[fleet.Output] {
	return collection[fleet.Output]{w.Store.Outputs(), w.Store}
}

func (w watched) Packages() store.Collection[fleet.Package] {
	return collection[fleet.Package]{w.Store.Packages(), w.Store}
}

func (w watched) EnrollmentKeys() store.Collection[fleet.EnrollmentKey] {
	return collection[fleet.EnrollmentKey]{w.Store.EnrollmentKeys(), w.Store}
}

func (w watched) AdminKeys() store.Collection[fleet.AdminKey] {
	return collection[fleet.AdminKey]{w.Store.AdminKeys(), w.Store}
}

func (w watched) PublisherKeys() store.Collection[fleet.PublisherKey] {
	return collection[fleet.PublisherKey]{w.Store.PublisherKeys(), w.Store}
}

func (w watched) TrustFiles() store.Collection[fleet.TrustFile] {
	return collection[fleet.TrustFile]{w.Store.TrustFiles(), w.Store}
}

func (w watched) RolloutGroups() store.Collection[fleet.RolloutGroup] {
	return collection[fleet.RolloutGroup]{w.Store.RolloutGroups(), w.Store}
}

func (w watched) DeclaredFleets() store.Collection[fleet.DeclaredFleet] {
	return collection[fleet.DeclaredFleet]{w.Store.DeclaredFleets(), w.Store}
}

func (w watched) ExposureRules() store.Collection[fleet.ExposureRule] {
	return collection[fleet.ExposureRule]{w.Store.ExposureRules(), w.Store}
}

func (w watched) Freezes() store.Collection[fleet.Freeze] {
	return collection[fleet.Freeze]{w.Store.Freezes(), w.Store}
}

func (w watched) Incidents() store.Collection[fleet.Incident] {
	return collection[fleet.Incident]{w.Store.Incidents(), w.Store}
}

func (w watched) Webhooks() store.Collection[fleet.Webhook] {
	return collection[fleet.Webhook]{w.Store.Webhooks(), w.Store}
}

func (w watched) DeadLetters() store.Collection[fleet.DeadLetter] {
	return collection[fleet.DeadLetter]{w.Store.DeadLetters(), w.Store}
}

func (w watched) Uploads() store.Collection[fleet.Upload] {
	return collection[fleet.Upload]{w.Store.Uploads(), w.Store}
}

func (w watched) Servers() store.Collection[fleet.Server] {
	return collection[fleet.Server]{w.Store.Servers(), w.Store}
}

func (w watched) ServerUpgrades() store.Collection[fleet.ServerUpgrade] {
	return collection[fleet.ServerUpgrade]{w.Store.ServerUpgrades(), w.Store}
}

func (w watched) Views() store.Collection[fleet.View] {
	return collection[fleet.View]{w.Store.Views(), w.Store}
}

func (w watched) Rollouts() store.Rollouts {
	r := w.Store.Rollouts()
	return rollouts{collection[fleet.Rollout]{r, w.Store}, r}
}

type rollouts struct {
	collection[fleet.Rollout]
	active store.Rollouts
}

func (r rollouts) Active(ctx context.Context) ([]store.RolloutHead, error) {
	return r.active.Active(ctx)
}

func (w watched) Agents() store.Agents { return agents{w.Store.Agents(), w.Store} }

type agents struct {
	store.Agents
	store store.Store
}

func (a agents) Create(ctx context.Context, v fleet.Agent) error {
	if err := RecordCall(ctx, a.store); err != nil {
		return err
	}
	return a.Agents.Create(ctx, v)
}

func (a agents) Update(ctx context.Context, v fleet.Agent) (int64, error) {
	if err := RecordCall(ctx, a.store); err != nil {
		return 0, err
	}
	return a.Agents.Update(ctx, v)
}

func (a agents) UpdateMany(ctx context.Context, list []fleet.Agent) ([]error, error) {
	if err := RecordCall(ctx, a.store); err != nil {
		return nil, err
	}
	return a.Agents.UpdateMany(ctx, list)
}

func (a agents) Report(ctx context.Context, r store.Report) (int64, error) {
	if err := RecordCall(ctx, a.store); err != nil {
		return 0, err
	}
	return a.Agents.Report(ctx, r)
}

func (a agents) Delete(ctx context.Context, id string) error {
	if err := RecordCall(ctx, a.store); err != nil {
		return err
	}
	return a.Agents.Delete(ctx, id)
}

func (w watched) Actions() store.Actions { return actions{w.Store.Actions(), w.Store} }

type actions struct {
	store.Actions
	store store.Store
}

func (a actions) Create(ctx context.Context, v fleet.Action) (int64, error) {
	if err := RecordCall(ctx, a.store); err != nil {
		return 0, err
	}
	return a.Actions.Create(ctx, v)
}

func (a actions) Cancel(ctx context.Context, id string, at time.Time) error {
	if err := RecordCall(ctx, a.store); err != nil {
		return err
	}
	return a.Actions.Cancel(ctx, id, at)
}

func (a actions) Delete(ctx context.Context, id string) error {
	if err := RecordCall(ctx, a.store); err != nil {
		return err
	}
	return a.Actions.Delete(ctx, id)
}

func (w watched) Settings() store.Settings { return settings{w.Store.Settings(), w.Store} }

type settings struct {
	store.Settings
	store store.Store
}

func (s settings) Delete(ctx context.Context, name string) error {
	if err := RecordCall(ctx, s.store); err != nil {
		return err
	}
	return s.Settings.Delete(ctx, name)
}
