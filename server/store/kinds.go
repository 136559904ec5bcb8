package store

import (
	"context"
	"slices"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
)

// Info describes a kind of stored documents. The table below has all kinds. From it follow what
// both implementations store, what a migration copies and Verify compares, which writes the audit
// trail has an entry before, what package retention removes, and what the contract suite tests.
type Info struct {
	// Name is the singular, for messages. Implementations file documents under it, so it never
	// changes.
	Name   string
	Plural string // for reports
	// Large means that documents may have hundreds of KB or more: few are read by one request.
	Large bool
	// Process means that documents belong to the processes that use the store: a migration does
	// not copy them.
	Process bool
	// Inner means that operators do not know of the documents: a call that writes only them needs
	// no entry in the audit trail.
	Inner bool
	// Leaves says what removes documents, and Owner names the kind that they leave with.
	Leaves Leaving
	Owner  string
	// Keep bounds the documents that package retention leaves, of ByRetention.
	Keep Limits

	zero func() any
	head func(v any) (id string, revision *int64)
	// typed is Kind.head.
	typed any
	// removeOwned removes the documents that go with one of their owner's; see RemoveOwned.
	removeOwned func(ctx context.Context, db Store, ownerID string, owner any) error
}

// Limits are how long, and how many, documents of a kind are kept that are over. Zero is no limit.
type Limits struct {
	Age   time.Duration
	Count int
}

// Exceeded reports whether a document is not kept that is over for an age, and of whose kind there
// are newer ones.
func (l Limits) Exceeded(age time.Duration, newer int) bool {
	return l.Age > 0 && age > l.Age || l.Count > 0 && newer >= l.Count
}

// MaxEvents is how many events are kept: some days of a busy fleet, and at 300 bytes each at most
// 60 MB.
const MaxEvents = 200_000

const day = 24 * time.Hour

// Leaving is what keeps the documents of a kind from becoming more and more.
type Leaving string

// The values of Leaving.
const (
	ByOperators Leaving = "operators create and delete them"
	ByNumber    Leaving = "there is a most, beyond which none is created"
	ByWriter    Leaving = "who writes them removes them"
	WithOwner   Leaving = "they go when their owner goes"
	ByRetention Leaving = "package retention removes what is over and old"
)

// Collected reports whether documents are stored in a Collection. Other kinds have an interface of
// their own.
func (i *Info) Collected() bool { return i.zero != nil }

// New returns a pointer to an empty value of a kind that is Collected.
func (i *Info) New() any { return i.zero() }

// Head returns the id of a value, which v points to, and a pointer to its revision.
func (i *Info) Head(v any) (id string, revision *int64) { return i.head(v) }

// Kind is a kind of documents that are stored in a Collection.
type Kind[T any] struct {
	*Info
	head func(*T) (id string, revision *int64)
}

// table has all kinds, in the order in which they are copied: documents come after those that
// they refer to.
var table []*Info

// Kinds returns all kinds, in the order in which they are copied.
func Kinds() []*Info { return slices.Clone(table) }

func special(i Info) *Info {
	table = append(table, &i)
	return &i
}

func kind[T any](i Info, head func(*T) (id string, revision *int64)) Kind[T] {
	k := OwnKind(i.Name, head)
	i.zero, i.head, i.typed = k.zero, k.Info.head, head
	*k.Info = i
	table = append(table, k.Info)
	return k
}

// ownedBy says which documents of a kind go with one of their owner's: those whose of is its id.
// They are among the ids that owned returns; if it is nil, all are read.
func ownedBy[O, T any](k Kind[T], owned func(*O) (ids []string), of func(*T) (ownerID string)) Kind[T] {
	k.removeOwned = func(ctx context.Context, db Store, ownerID string, owner any) error {
		c := k.In(db.Documents(k.Info))
		var list []T
		var err error
		if owned == nil {
			list, _, err = c.List(ctx, 0, 0)
		} else {
			for _, id := range owned(owner.(*O)) {
				v, err := c.Get(ctx, id)
				if err == nil {
					list = append(list, v)
				} else if fleet.KindOf(err) != fleet.NotFound {
					return err
				}
			}
		}
		if err != nil {
			return err
		}
		for i := range list {
			if of(&list[i]) != ownerID {
				continue
			}
			id, _ := k.head(&list[i])
			if err := c.Delete(ctx, id); err != nil {
				return err
			}
		}
		return nil
	}
	return k
}

// RemoveOwned removes the documents that go with v, which the caller then deletes. What a store
// removes with a document itself, such as the targets of a rollout, is not among them.
func RemoveOwned[T any](ctx context.Context, db Store, owner Kind[T], v *T) error {
	id, _ := owner.head(v)
	for _, k := range table {
		if k.Owner == owner.Name && k.removeOwned != nil {
			if err := k.removeOwned(ctx, db, id, v); err != nil {
				return err
			}
		}
	}
	return nil
}

// OwnKind returns a kind that only one implementation knows, for what it has to remember itself. A
// migration does not copy its documents.
func OwnKind[T any](name string, head func(*T) (id string, revision *int64)) Kind[T] {
	return Kind[T]{&Info{
		Name: name, Process: true, Inner: true,
		zero: func() any { return new(T) },
		head: func(v any) (string, *int64) { return head(v.(*T)) },
	}, head}
}

// The table of kinds. A kind that is Collected also has a method in Collections and one of Typed,
// at the end of this file; the others have one in Store.
var (
	KindSettings = special(Info{Name: "setting", Plural: "settings", Leaves: ByWriter})

	KindFleetProxies = kind(Info{Name: "fleet proxy", Plural: "fleet proxies", Leaves: ByOperators},
		func(v *fleet.FleetProxy) (string, *int64) { return v.ID, &v.Revision })
	KindFleetServerHosts = kind(Info{Name: "fleet server host", Plural: "fleet server hosts", Leaves: ByOperators},
		func(v *fleet.FleetServerHost) (string, *int64) { return v.ID, &v.Revision })
	KindDownloadSources = kind(Info{Name: "download source", Plural: "download sources", Leaves: ByOperators},
		func(v *fleet.DownloadSource) (string, *int64) { return v.ID, &v.Revision })
	KindOutputs = kind(Info{Name: "output", Plural: "outputs", Leaves: ByOperators},
		func(v *fleet.Output) (string, *int64) { return v.ID, &v.Revision })
	KindPolicies = kind(Info{Name: "policy", Plural: "policies", Leaves: ByOperators},
		func(v *fleet.Policy) (string, *int64) { return v.ID, &v.Revision })
	KindEnrollmentKeys = kind(Info{Name: "enrollment key", Plural: "enrollment keys", Leaves: ByOperators},
		func(v *fleet.EnrollmentKey) (string, *int64) { return v.ID, &v.Revision })
	KindAdminKeys = kind(Info{Name: "admin key", Plural: "admin keys", Leaves: ByOperators},
		func(v *fleet.AdminKey) (string, *int64) { return v.ID, &v.Revision })
	KindPublisherKeys = kind(Info{Name: "publisher key", Plural: "publisher keys", Leaves: ByOperators},
		func(v *fleet.PublisherKey) (string, *int64) { return v.ID, &v.Revision })
	KindTrustFiles = kind(Info{Name: "trust file", Plural: "trust files", Leaves: ByWriter},
		func(v *fleet.TrustFile) (string, *int64) { return v.ID, &v.Revision })
	KindPackages = kind(Info{Name: "package", Plural: "packages", Leaves: ByOperators},
		func(v *fleet.Package) (string, *int64) { return v.File, &v.Revision })

	// `muster store migrate` copies the bytes, of which one server may keep them in its folder.
	KindPackageData = special(Info{Name: "package data", Plural: "package data", Process: true, Inner: true, Leaves: WithOwner, Owner: "package"})
	// Three months answer "what has changed on this host lately". An action for a whole fleet
	// has 4 MB; ten thousand are a month of a rollout's offers every few minutes.
	KindActions = special(Info{Name: "action", Plural: "actions", Leaves: ByRetention, Keep: Limits{90 * day, 10_000}})
	KindAgents  = special(Info{
		Name: "agent", Plural: "agents", Leaves: ByOperators,
		typed: func(v *fleet.Agent) (string, *int64) { return v.ID, &v.Revision },
	})

	KindAcceptedOrders = kind(Info{Name: "accepted order", Plural: "accepted orders", Large: true, Inner: true, Leaves: ByNumber},
		func(v *fleet.AcceptedOrder) (string, *int64) { return v.ID, &v.Revision })

	KindResults = special(Info{Name: "result", Plural: "results", Inner: true, Leaves: WithOwner, Owner: "action"})

	// A year covers a release and the same one of the year before. A rollout of 100,000 hosts
	// has some 60 MB of targets.
	KindRollouts = kind(Info{Name: "rollout", Plural: "rollouts", Large: true, Leaves: ByRetention, Keep: Limits{365 * day, 500}},
		func(v *fleet.Rollout) (string, *int64) { return v.ID, &v.Revision })

	KindTargets = special(Info{Name: "target", Plural: "targets", Inner: true, Leaves: WithOwner, Owner: "rollout"})

	KindPreviews = ownedBy(kind(Info{Name: "preview", Plural: "previews", Large: true, Inner: true, Leaves: WithOwner, Owner: "rollout"},
		func(v *fleet.Preview) (string, *int64) { return v.Hash, &v.Revision }),
		func(r *fleet.Rollout) []string {
			if r.Pin == nil {
				return r.Previews
			}
			return append(slices.Clone(r.Previews), r.Pin.Hash)
		},
		func(v *fleet.Preview) string { return v.RolloutID }) // the same preview may be another rollout's
	KindAgentListings = kind(Info{Name: "agent listing", Plural: "agent listings", Large: true, Inner: true, Leaves: ByWriter},
		func(v *fleet.AgentListing) (string, *int64) { return v.ID, &v.Revision })
	KindPolicyLocks = ownedBy[fleet.Rollout](kind(Info{Name: "policy lock", Plural: "policy locks", Inner: true, Leaves: WithOwner, Owner: "rollout"},
		func(v *fleet.PolicyLock) (string, *int64) { return v.Key(), &v.Revision }),
		nil, func(v *fleet.PolicyLock) string { return v.RolloutID })
	// Groups live as long as their rollouts. All are read every half minute while this server
	// executes them.
	KindRolloutGroups = kind(Info{Name: "rollout group", Plural: "rollout groups", Large: true, Leaves: ByRetention, Keep: Limits{365 * day, 100}},
		func(v *fleet.RolloutGroup) (string, *int64) { return v.ID, &v.Revision })
	KindDeclaredFleets = kind(Info{Name: "declared fleet", Plural: "declared fleets", Leaves: ByOperators},
		func(v *fleet.DeclaredFleet) (string, *int64) { return v.Name, &v.Revision })
	KindExposureRules = kind(Info{Name: "exposure rule", Plural: "exposure rules", Leaves: ByOperators},
		func(v *fleet.ExposureRule) (string, *int64) { return v.ID, &v.Revision })
	KindFreezes = kind(Info{Name: "freeze", Plural: "freezes", Leaves: ByOperators},
		func(v *fleet.Freeze) (string, *int64) { return v.ID, &v.Revision })
	// Resolved incidents are compared with later ones.
	KindIncidents = kind(Info{Name: "incident", Plural: "incidents", Leaves: ByRetention, Keep: Limits{365 * day, 2_000}},
		func(v *fleet.Incident) (string, *int64) { return v.ID, &v.Revision })
	KindWebhooks = kind(Info{Name: "webhook", Plural: "webhooks", Leaves: ByOperators},
		func(v *fleet.Webhook) (string, *int64) { return v.ID, &v.Revision })
	// A receiver that has not been repaired within a month will not miss them. Package
	// webhook bounds their number.
	KindDeadLetters = ownedBy[fleet.Webhook](kind(Info{Name: "dead letter", Plural: "dead letters", Leaves: ByRetention, Owner: "webhook", Keep: Limits{30 * day, 1_000}},
		func(v *fleet.DeadLetter) (string, *int64) { return v.ID, &v.Revision }),
		nil, func(v *fleet.DeadLetter) string { return v.WebhookID })
	// Package diagnostics has the limits.
	KindUploads = kind(Info{Name: "upload", Plural: "uploads", Leaves: ByRetention},
		func(v *fleet.Upload) (string, *int64) { return v.ID, &v.Revision })
	KindViews = kind(Info{Name: "view", Plural: "views", Leaves: ByNumber},
		func(v *fleet.View) (string, *int64) { return v.ID, &v.Revision })
	KindSamples = kind(Info{Name: "sample", Plural: "samples", Inner: true, Leaves: ByWriter},
		func(v *fleet.Sample) (string, *int64) { return v.ID, &v.Revision })

	// Auditors ask for a year, and come some weeks after its end. An entry has 1 KB.
	KindAudit = special(Info{Name: "audit entry", Plural: "audit entries", Inner: true, Leaves: ByRetention, Keep: Limits{400 * day, 500_000}})
	// As long as the actions that it names. A fleet of 100,000 hosts has ten records of each,
	// some 700 MB.
	KindHistory = special(Info{Name: "history record", Plural: "history records", Inner: true, Leaves: ByRetention, Keep: Limits{90 * day, 1_000_000}})
	KindEvents  = special(Info{Name: "event", Plural: "events", Inner: true, Leaves: ByRetention, Keep: Limits{Count: MaxEvents}})

	KindLeases = kind(Info{Name: "lease", Plural: "leases", Process: true, Inner: true, Leaves: ByWriter},
		func(v *fleet.Lease) (string, *int64) { return v.ID, &v.Revision })
	// A week is for a machine that is being repaired, or a container that was replaced.
	KindServers = kind(Info{Name: "server", Plural: "servers", Process: true, Leaves: ByRetention, Keep: Limits{Age: 7 * day}},
		func(v *fleet.Server) (string, *int64) { return v.ID, &v.Revision })
	KindServerUpgrades = kind(Info{Name: "server upgrade", Plural: "server upgrades", Process: true, Leaves: ByNumber},
		func(v *fleet.ServerUpgrade) (string, *int64) { return v.ID, &v.Revision })
)

// Documents stores the documents of one kind, whatever their type: what an implementation provides,
// once for all kinds that are Collected. Values are passed as pointers. The rules of Collection hold.
type Documents interface {
	Create(ctx context.Context, id string, v any) error
	// Get decodes the document into v.
	Get(ctx context.Context, id string, v any) (revision int64, err error)
	Update(ctx context.Context, id string, revision int64, v any) (updated int64, err error)
	Delete(ctx context.Context, id string) error
	// List calls f with each document of the page. decode decodes it; f returns its error, which
	// leaves the document out if it cannot be read.
	List(ctx context.Context, offset, limit int, f func(revision int64, decode func(v any) error) error) (total int, err error)
}

// In returns the collection of the kind that d stores.
func (k Kind[T]) In(d Documents) Collection[T] { return typed[T]{d, k} }

// typed implements Collection.
type typed[T any] struct {
	d    Documents
	kind Kind[T]
}

func (c typed[T]) Create(ctx context.Context, v T) error {
	id, _ := c.kind.head(&v)
	return c.d.Create(ctx, id, &v)
}

func (c typed[T]) Get(ctx context.Context, id string) (T, error) {
	var v T
	revision, err := c.d.Get(ctx, id, &v)
	if err != nil {
		return *new(T), err
	}
	_, at := c.kind.head(&v)
	*at = revision
	return v, nil
}

func (c typed[T]) Update(ctx context.Context, v T) (int64, error) {
	id, at := c.kind.head(&v)
	return c.d.Update(ctx, id, *at, &v)
}

func (c typed[T]) Delete(ctx context.Context, id string) error { return c.d.Delete(ctx, id) }

func (c typed[T]) List(ctx context.Context, offset, limit int) ([]T, int, error) {
	out := []T{}
	total, err := c.d.List(ctx, offset, limit, func(revision int64, decode func(any) error) error {
		var v T
		if err := decode(&v); err != nil {
			return err
		}
		_, at := c.kind.head(&v)
		*at = revision
		out = append(out, v)
		return nil
	})
	if err != nil {
		return nil, 0, err
	}
	return out, total, nil
}

// Collections has the collections of a store, by their kinds.
type Collections interface {
	FleetProxies() Collection[fleet.FleetProxy]
	FleetServerHosts() Collection[fleet.FleetServerHost]
	DownloadSources() Collection[fleet.DownloadSource]
	Outputs() Collection[fleet.Output]
	Policies() Collection[fleet.Policy]
	EnrollmentKeys() Collection[fleet.EnrollmentKey]
	AdminKeys() Collection[fleet.AdminKey]
	PublisherKeys() Collection[fleet.PublisherKey]
	// TrustFiles are small, except for one that may have a megabyte.
	TrustFiles() Collection[fleet.TrustFile]
	Packages() Collection[fleet.Package]
	// AcceptedOrders has at most fleet.MaxAcceptedOrders documents, of up to some MB each.
	AcceptedOrders() Collection[fleet.AcceptedOrder]
	Previews() Collection[fleet.Preview]
	// AgentListings has a few documents, each of some MB for a large fleet.
	AgentListings() Collection[fleet.AgentListing]
	PolicyLocks() Collection[fleet.PolicyLock]
	RolloutGroups() Collection[fleet.RolloutGroup]
	DeclaredFleets() Collection[fleet.DeclaredFleet]
	ExposureRules() Collection[fleet.ExposureRule]
	Freezes() Collection[fleet.Freeze]
	Incidents() Collection[fleet.Incident]
	Webhooks() Collection[fleet.Webhook]
	DeadLetters() Collection[fleet.DeadLetter]
	Uploads() Collection[fleet.Upload]
	// Views has at most fleet.MaxViews documents.
	Views() Collection[fleet.View]
	// Samples are bounded by package series, which thins them out.
	Samples() Collection[fleet.Sample]
	Leases() Collection[fleet.Lease]
	Servers() Collection[fleet.Server]
	// ServerUpgrades has at most one document, of the id fleet.ServerUpgradeID.
	ServerUpgrades() Collection[fleet.ServerUpgrade]
}

// Typed implements Collections on the documents of each kind.
type Typed func(kind *Info) Documents

func (t Typed) FleetProxies() Collection[fleet.FleetProxy] {
	return in(t, KindFleetProxies)
}

func (t Typed) FleetServerHosts() Collection[fleet.FleetServerHost] {
	return in(t, KindFleetServerHosts)
}

func (t Typed) DownloadSources() Collection[fleet.DownloadSource] {
	return in(t, KindDownloadSources)
}

func (t Typed) Outputs() Collection[fleet.Output] {
	return in(t, KindOutputs)
}

func (t Typed) Policies() Collection[fleet.Policy] {
	return in(t, KindPolicies)
}

func (t Typed) EnrollmentKeys() Collection[fleet.EnrollmentKey] {
	return in(t, KindEnrollmentKeys)
}

func (t Typed) AdminKeys() Collection[fleet.AdminKey] {
	return in(t, KindAdminKeys)
}

func (t Typed) PublisherKeys() Collection[fleet.PublisherKey] {
	return in(t, KindPublisherKeys)
}

func (t Typed) TrustFiles() Collection[fleet.TrustFile] {
	return in(t, KindTrustFiles)
}

func (t Typed) Packages() Collection[fleet.Package] {
	return in(t, KindPackages)
}

func (t Typed) AcceptedOrders() Collection[fleet.AcceptedOrder] {
	return in(t, KindAcceptedOrders)
}

func (t Typed) Previews() Collection[fleet.Preview] {
	return in(t, KindPreviews)
}

func (t Typed) AgentListings() Collection[fleet.AgentListing] {
	return in(t, KindAgentListings)
}

func (t Typed) PolicyLocks() Collection[fleet.PolicyLock] {
	return in(t, KindPolicyLocks)
}

func (t Typed) RolloutGroups() Collection[fleet.RolloutGroup] {
	return in(t, KindRolloutGroups)
}

func (t Typed) DeclaredFleets() Collection[fleet.DeclaredFleet] {
	return in(t, KindDeclaredFleets)
}

func (t Typed) ExposureRules() Collection[fleet.ExposureRule] {
	return in(t, KindExposureRules)
}

func (t Typed) Freezes() Collection[fleet.Freeze] {
	return in(t, KindFreezes)
}

func (t Typed) Incidents() Collection[fleet.Incident] {
	return in(t, KindIncidents)
}

func (t Typed) Webhooks() Collection[fleet.Webhook] {
	return in(t, KindWebhooks)
}

func (t Typed) DeadLetters() Collection[fleet.DeadLetter] {
	return in(t, KindDeadLetters)
}

func (t Typed) Uploads() Collection[fleet.Upload] {
	return in(t, KindUploads)
}

func (t Typed) Views() Collection[fleet.View] {
	return in(t, KindViews)
}

func (t Typed) Samples() Collection[fleet.Sample] {
	return in(t, KindSamples)
}

func (t Typed) Leases() Collection[fleet.Lease] {
	return in(t, KindLeases)
}

func (t Typed) Servers() Collection[fleet.Server] {
	return in(t, KindServers)
}

func (t Typed) ServerUpgrades() Collection[fleet.ServerUpgrade] {
	return in(t, KindServerUpgrades)
}

func in[T any](t Typed, k Kind[T]) Collection[T] { return k.In(t(k.Info)) }
