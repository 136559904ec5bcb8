// Package declare stores objects of kind Fleet for operators: it applies, lists, deletes and
// compares them, says which of them an agent belongs to, and lets an operator's order take agents
// over. The admin handlers call [Service]. Package spec/reconcile carries the objects out, and
// writes their statuses through it.
package declare

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	jsonv1 "github.com/go-json-experiment/json/v1"

	"github.com/muster-fleet/muster/server/clock"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout"
	"github.com/muster-fleet/muster/server/rollout/plan"
	"github.com/muster-fleet/muster/server/rollout/spec"
	"github.com/muster-fleet/muster/server/rollout/spec/conversion"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/audit"
	"github.com/muster-fleet/muster/server/store/event"
)

const (
	// MaxObjects bounds the objects of a server. The loop, and every order of an operator, read
	// all of them: 5,000 small ones take some milliseconds, and a fleet of 100,000 agents has an
	// object for every 20 of them then.
	MaxObjects = 5_000
	// maxWhy bounds a reason, in bytes, as in rollouts.
	maxWhy = 2 << 10
	// ErrOwned is the code of the error that an order is for agents of an object.
	ErrOwned = "fleet_owned"
)

// Config is what a service depends on.
type Config struct {
	Store store.Store
	// Rollouts previews and cancels rollouts, and finds upgrade manifests.
	Rollouts *rollout.Service
	// Policies has the timeouts that queries of selectors depend on.
	Policies rollout.Policies
	Events   *event.Stream
	Log      *slog.Logger
	Now      clock.Clock
	// Changed is called after each change of an object by an operator, so that the loop need not
	// wait for its next round; it may be nil.
	Changed func()
}

// Service stores the objects.
type Service struct{ Config }

// New returns a service.
func New(c Config) *Service { return &Service{c} }

// Request says who changes an object, and why.
type Request struct{ Actor, Why string }

func (r Request) check() error {
	if len(r.Why) > maxWhy {
		return fleet.FieldError("body.why", "has %d bytes, at most %d are accepted", len(r.Why), maxWhy)
	}
	return nil
}

// Object is a stored object.
type Object struct {
	spec.Fleet
	// Written is the spec as it was written, in the version of the API that is stored: GET
	// returns it, so that no default of a server looks like a change to a tool.
	Written json.RawMessage
}

// document is the JSON of an object.
type document struct {
	APIVersion string          `json:"apiVersion"`
	Kind       string          `json:"kind"`
	Metadata   spec.Metadata   `json:"metadata"`
	Spec       json.RawMessage `json:"spec"`
	Status     spec.Status     `json:"status,omitzero"`
}

// MarshalJSON encodes the object with its spec as it was written.
func (o Object) MarshalJSON() ([]byte, error) {
	return json.Marshal(document{spec.APIVersion, spec.Kind, o.Metadata, o.Written, o.Status})
}

// In returns the object as JSON in a version of the API.
func (o Object) In(apiVersion string) (json.RawMessage, error) {
	doc, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	return conversion.Object(doc, cmp.Or(apiVersion, spec.APIVersion))
}

// doc returns the document that is stored, without the resourceVersion, which is the revision.
func (o Object) doc() (json.RawMessage, error) {
	o.Metadata.ResourceVersion = ""
	return json.Marshal(o)
}

func load(d fleet.DeclaredFleet) (Object, error) {
	var (
		o   Object
		doc document
	)
	err := jsonv1.Unmarshal(d.Doc, &doc)
	if err == nil && doc.APIVersion != spec.APIVersion {
		var current []byte
		if current, err = conversion.Object(d.Doc, spec.APIVersion); err == nil {
			doc = document{}
			err = jsonv1.Unmarshal(current, &doc)
		}
	}
	if err == nil {
		err = jsonv1.Unmarshal(doc.Spec, &o.Spec)
	}
	if err != nil {
		return o, fleet.Errorf(fleet.Conflict, "fleet %s is stored in a form that this server cannot read, so a newer one wrote it: upgrade this server (%w)", d.Name, err)
	}
	o.APIVersion, o.Kind, o.Metadata, o.Status, o.Written = spec.APIVersion, spec.Kind, doc.Metadata, doc.Status, doc.Spec
	o.Metadata.ResourceVersion = strconv.FormatInt(d.Revision, 10)
	return o, nil
}

// stored returns the object to write over the revision that o was read at.
func (o Object) stored() (fleet.DeclaredFleet, error) {
	doc, err := o.doc()
	if err != nil {
		return fleet.DeclaredFleet{}, err
	}
	revision, err := strconv.ParseInt(cmp.Or(o.Metadata.ResourceVersion, "0"), 10, 64)
	return fleet.DeclaredFleet{Name: o.Metadata.Name, Doc: doc, Revision: revision}, err
}

// Get returns an object.
func (s *Service) Get(ctx context.Context, name string) (Object, error) {
	d, err := s.read(ctx, name)
	if err != nil {
		return Object{}, err
	}
	return load(d)
}

func (s *Service) read(ctx context.Context, name string) (fleet.DeclaredFleet, error) {
	d, err := s.Store.DeclaredFleets().Get(ctx, name)
	if err != nil && fleet.KindOf(err) == fleet.NotFound {
		return d, fleet.Errorf(fleet.NotFound, "there is no fleet %s: `muster get fleets` shows those there are", name)
	}
	return d, err
}

// objects returns all objects, the oldest first. One that only a newer server can read is left to
// it.
func (s *Service) objects(ctx context.Context) ([]Object, error) {
	list, _, err := s.Store.DeclaredFleets().List(ctx, 0, 0)
	if err != nil {
		return nil, err
	}
	objects := make([]Object, 0, len(list))
	for _, d := range list {
		o, err := load(d)
		if err != nil {
			s.Log.Warn("a declared fleet is left to a newer server", "fleet", d.Name, "error", err)
			continue
		}
		objects = append(objects, o)
	}
	slices.SortFunc(objects, func(a, b Object) int { return spec.Older(&a.Fleet, &b.Fleet) })
	return objects, nil
}

// All returns all objects, the oldest first.
func (s *Service) All(ctx context.Context) ([]spec.Fleet, error) {
	objects, err := s.objects(ctx)
	if err != nil {
		return nil, err
	}
	all := make([]spec.Fleet, len(objects))
	for i, o := range objects {
		all[i] = o.Fleet
	}
	return all, nil
}

// List returns the objects that have all of the labels, by name, from offset on and at most limit
// (0: all), and their total number.
func (s *Service) List(ctx context.Context, labels map[string]string, offset, limit int) ([]Object, int, error) {
	objects, err := s.objects(ctx)
	if err != nil {
		return nil, 0, err
	}
	objects = slices.DeleteFunc(objects, func(o Object) bool {
		for name, value := range labels {
			if got, ok := o.Metadata.Labels[name]; !ok || got != value {
				return true
			}
		}
		return false
	})
	slices.SortFunc(objects, func(a, b Object) int { return strings.Compare(a.Metadata.Name, b.Metadata.Name) })
	total := len(objects)
	objects = objects[min(offset, total):]
	if limit > 0 {
		objects = objects[:min(limit, len(objects))]
	}
	return objects, total, nil
}

// UpdateStatus replaces the status of an object, unless the object was changed since it was read,
// and returns it as it is stored then. A status that is the same is not written.
func (s *Service) UpdateStatus(ctx context.Context, f *spec.Fleet, status spec.Status) (spec.Fleet, error) {
	o, err := s.Get(ctx, f.Metadata.Name)
	if err != nil {
		return spec.Fleet{}, err
	}
	if o.Metadata.UID != f.Metadata.UID || o.Metadata.ResourceVersion != f.Metadata.ResourceVersion {
		return o.Fleet, fleet.Errorf(fleet.Conflict, "fleet %s was changed meanwhile", f.Metadata.Name)
	}
	if sameJSON(o.Status, status) {
		return o.Fleet, nil
	}
	o.Status = status
	o, err = s.update(ctx, o)
	return o.Fleet, err
}

// update writes an object that was read, and returns it as it is stored then.
func (s *Service) update(ctx context.Context, o Object) (Object, error) {
	d, err := o.stored()
	if err != nil {
		return o, err
	}
	if d.Revision, err = s.Store.DeclaredFleets().Update(ctx, d); err != nil {
		return o, err
	}
	return load(d)
}

// change changes the status of an object for an operator. edit may be called several times.
func (s *Service) change(ctx context.Context, name, verb, text string, req Request, edit func(*Object) error) (Object, error) {
	if err := req.check(); err != nil {
		return Object{}, err
	}
	d, _, err := store.Change(ctx, store.WithGet(s.Store.DeclaredFleets(), s.read), name, func(d fleet.DeclaredFleet) (fleet.DeclaredFleet, error) {
		o, err := load(d)
		if err == nil {
			err = edit(&o)
		}
		if err != nil {
			return d, err
		}
		return o.stored()
	}, func(_, d fleet.DeclaredFleet) error {
		o, err := load(d)
		if err != nil {
			return err
		}
		return s.record(ctx, &o, verb, text, nil, req)
	})
	if err != nil {
		return Object{}, err
	}
	o, err := load(d)
	if err == nil {
		s.publish(ctx, &o, verb, nil, req)
	}
	return o, err
}

// Resume ends the suspension of an object.
func (s *Service) Resume(ctx context.Context, name string, req Request) (Object, error) {
	return s.change(ctx, name, verbResume, "resumed the fleet "+name, req, func(o *Object) error {
		if refused := checkResume(o); refused != nil {
			return refused.Err("fleet " + name)
		}
		o.Status.Suspended = nil
		return nil
	})
}

// suspend lets an operator's order take over agents of an object.
func (s *Service) suspend(ctx context.Context, name string, req Request) error {
	by := fleet.Decision{By: req.Actor, At: s.Now.UTC().Truncate(time.Second), Why: req.Why}
	_, err := s.change(ctx, name, verbSuspend, "took over agents of the fleet "+name+", which suspends it", req, func(o *Object) error {
		o.Status.Suspended = &by
		return nil
	})
	return err
}

// Verbs of the audit trail.
const (
	verbApply   = "fleet.apply"
	verbDelete  = "fleet.delete"
	verbSuspend = "fleet.suspend"
	verbResume  = "fleet.resume"
)

// Subject returns the subject of the audit entries about an object.
func Subject(name string) string { return "fleet/" + name }

// entry is the data of an audit entry, and of an event.
type entry struct {
	UID        string   `json:"uid"`
	Generation int64    `json:"generation"`
	Hash       string   `json:"hash"`
	Changed    []string `json:"changed,omitempty"`
	// Action is apply, delete, suspend or resume; only in events.
	Action string `json:"action,omitempty"`
}

// maxChanged bounds the paths of one entry: more than a person reads.
const maxChanged = 100

func (o *Object) entry(changed []string) entry {
	return entry{UID: o.Metadata.UID, Generation: o.Metadata.Generation, Hash: spec.Hash(&o.Fleet), Changed: changed[:min(len(changed), maxChanged)]}
}

func (s *Service) record(ctx context.Context, o *Object, verb, text string, changed []string, req Request) error {
	return audit.Record(ctx, s.Store.Audit(), s.Now.UTC(), fleet.AuditEntry{
		Actor: req.Actor, Verb: verb, Subject: Subject(o.Metadata.Name), Why: req.Why, Text: text, Data: event.Data(o.entry(changed)),
	})
}

func (s *Service) publish(ctx context.Context, o *Object, verb string, changed []string, req Request) {
	if s.Changed != nil {
		s.Changed()
	}
	e := o.entry(changed)
	e.Action = strings.TrimPrefix(verb, "fleet.")
	s.Events.Publish(ctx, fleet.Event{Type: fleet.EventFleetChanged, Subject: o.Metadata.Name, Actor: req.Actor, Data: event.Data(e)})
}

// queryTime returns what queries of selectors depend on.
func (s *Service) queryTime(ctx context.Context) (plan.QueryTime, error) {
	at := plan.QueryTime{Now: s.Now.UTC()}
	var err error
	if s.Policies != nil {
		at.Timeouts, err = s.Policies.Timeouts(ctx)
	}
	return at, err
}

// ParseLabels parses a label selector such as a=b,c=d.
func ParseLabels(text string) (map[string]string, error) {
	labels := map[string]string{}
	for _, part := range strings.Split(text, ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		name, value, ok := strings.Cut(part, "=")
		name, value = strings.TrimSpace(name), strings.TrimSpace(strings.TrimPrefix(value, "="))
		if !ok || name == "" || strings.ContainsAny(name+value, "!=() ") {
			return nil, fleet.FieldError("query.labelSelector", "has %q, want label=value", part)
		}
		if old, again := labels[name]; again && old != value {
			return nil, fleet.FieldError("query.labelSelector", "demands two values of %s", name)
		}
		labels[name] = value
	}
	return labels, nil
}

func sentence(changed []string) string {
	const named = 5
	text := strings.Join(changed[:min(named, len(changed))], ", ")
	if more := len(changed) - named; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
