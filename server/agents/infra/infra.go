// Package infra manages what agents' policies are made from besides themselves: the hosts of
// Fleet Server, the sources of packages, proxies and outputs. Operators store them through
// Kibana's API. Two exist without being stored, made from the server's configuration: the
// host where agents reach this installation, and this installation as a source of packages.
package infra

import (
	"context"
	"encoding/json"
	"maps"
	"slices"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// The ids of the objects that exist from the first start are Kibana's.
const (
	DefaultHostID   = "fleet-default-fleet-server-host"
	DefaultSourceID = "fleet-default-download-source"
)

// Server is what the server itself contributes.
type Server struct {
	// AgentsURL is where agents reach the installation.
	AgentsURL string
	// Guessed says that AgentsURL is made from the machine's name, since the configuration
	// has none. Agents may not reach it.
	Guessed bool
	// CA is the PEM of the certificate that agents pin.
	CA string
}

func (s Server) host() fleet.FleetServerHost {
	return fleet.FleetServerHost{ID: DefaultHostID, Name: "Default", HostURLs: []string{s.AgentsURL}, Default: true}
}

// source has the CA in it: an Elastic Agent downloads with these certificates, not with
// those of its enrolment.
func (s Server) source() fleet.DownloadSource {
	d := fleet.DownloadSource{ID: DefaultSourceID, Name: "Muster", Host: s.AgentsURL + agentapi.PathArtifacts, Default: true}
	if s.CA != "" {
		d.SSL = &fleet.ClientSSL{CertificateAuthorities: []string{s.CA}}
	}
	return d
}

// Sealer encrypts secret values for the store. Seal returns nil, and Open false, if this
// server lacks the key.
type Sealer interface {
	Seal(owner, secret string) []byte
	Open(owner string, sealed []byte) (secret string, ok bool)
}

// Objects reads the stored objects of all kinds.
type Objects struct {
	Store  store.Store
	Server Server
	// Sealer may be nil: then secret values are refused.
	Sealer Sealer
	// Tokens is nil if this server lacks the key for them.
	Tokens *UninstallTokens
}

// object is implemented by the pointers to all kinds of objects.
type object[T any] interface {
	*T
	Secrets() map[string]*string
}

// head has what all kinds have in common.
type head struct {
	id        *string
	isDefault *bool // nil: there is no default of this kind
	sealed    *[]byte
	revision  *int64
}

// Set reads the objects of one kind.
type Set[T any, P object[T]] struct {
	objects Objects
	noun    string // in messages and in the audit trail
	stored  store.Collection[T]
	head    func(*T) head
	// builtIn is the object that exists unless another is stored under its id; nil: none.
	builtIn *T
}

// Hosts returns the hosts of Fleet Server.
func (o Objects) Hosts() Set[fleet.FleetServerHost, *fleet.FleetServerHost] {
	s := Set[fleet.FleetServerHost, *fleet.FleetServerHost]{
		objects: o, noun: "Fleet server", stored: o.Store.FleetServerHosts(),
		head: func(v *fleet.FleetServerHost) head { return head{&v.ID, &v.Default, &v.Sealed, &v.Revision} },
	}
	if o.Server.AgentsURL != "" {
		s.builtIn = new(o.Server.host())
	}
	return s
}

// HostFor returns the host of Fleet Server that the agents of a policy are sent to, by the
// id that the policy names. It is empty if they stay where they are: a guessed address would
// take agents from a load balancer, and Elastic Agents refuse a policy whose host they do
// not reach.
func (o Objects) HostFor(ctx context.Context, id string) (fleet.FleetServerHost, error) {
	all, err := o.Hosts().List(ctx)
	if err != nil {
		return fleet.FleetServerHost{}, err
	}
	return o.HostOf(all, id), nil
}

// HostOf is HostFor where all hosts are those of the list.
func (o Objects) HostOf(all []fleet.FleetServerHost, id string) fleet.FleetServerHost {
	h, ok := o.Hosts().choose(all, id)
	if builtIn := h.Revision == 0; !ok || builtIn && o.Server.Guessed {
		return fleet.FleetServerHost{}
	}
	return h
}

// Sources returns the sources of packages.
func (o Objects) Sources() Set[fleet.DownloadSource, *fleet.DownloadSource] {
	s := Set[fleet.DownloadSource, *fleet.DownloadSource]{
		objects: o, noun: "Agent binary source", stored: o.Store.DownloadSources(),
		head: func(v *fleet.DownloadSource) head { return head{&v.ID, &v.Default, &v.Sealed, &v.Revision} },
	}
	if o.Server.AgentsURL != "" {
		s.builtIn = new(o.Server.source())
	}
	return s
}

// Proxies returns the proxies.
func (o Objects) Proxies() Set[fleet.FleetProxy, *fleet.FleetProxy] {
	return Set[fleet.FleetProxy, *fleet.FleetProxy]{
		objects: o, noun: "Proxy", stored: o.Store.FleetProxies(),
		head: func(v *fleet.FleetProxy) head { return head{&v.ID, nil, &v.Sealed, &v.Revision} },
	}
}

// Outputs returns the outputs.
func (o Objects) Outputs() Set[fleet.Output, *fleet.Output] {
	return Set[fleet.Output, *fleet.Output]{
		objects: o, noun: "Output", stored: o.Store.Outputs(),
		head: func(v *fleet.Output) head { return head{&v.ID, &v.Default, &v.Sealed, &v.Revision} },
	}
}

// List returns all objects, the default one first, then the newest first.
func (s Set[T, P]) List(ctx context.Context) ([]T, error) {
	all, err := s.opened(ctx)
	if err != nil {
		return nil, err
	}
	return s.arrange(all), nil
}

// opened returns the stored objects with their secrets.
func (s Set[T, P]) opened(ctx context.Context) ([]T, error) {
	all, _, err := s.stored.List(ctx, 0, 0)
	if err != nil {
		return nil, err
	}
	for i := range all {
		if err := s.open(&all[i]); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// arrange returns what List does if all are the stored objects. It changes them.
func (s Set[T, P]) arrange(all []T) []T {
	if s.builtIn != nil {
		own := *s.builtIn
		i := s.index(all, *s.head(&own).id)
		if i < 0 {
			i = len(all)
			all = append(all, own)
		}
		// It is the default whenever no other is.
		*s.head(&all[i]).isDefault = false
		*s.head(&all[i]).isDefault = s.defaultIndex(all) < 0
	}
	if i := s.defaultIndex(all); i > 0 {
		first := all[i]
		all = slices.Insert(slices.Delete(all, i, i+1), 0, first)
	}
	return all
}

func (s Set[T, P]) index(all []T, id string) int {
	return slices.IndexFunc(all, func(v T) bool { return *s.head(&v).id == id })
}

func (s Set[T, P]) defaultIndex(all []T) int {
	return slices.IndexFunc(all, func(v T) bool { d := s.head(&v).isDefault; return d != nil && *d })
}

// Get returns one object.
func (s Set[T, P]) Get(ctx context.Context, id string) (T, error) {
	all, err := s.List(ctx)
	if err != nil {
		return *new(T), err
	}
	if i := s.index(all, id); i >= 0 {
		return all[i], nil
	}
	return *new(T), fleet.Errorf(fleet.NotFound, "%s %s not found", s.noun, id)
}

// For returns the object that a policy uses by its id: the default one if the id is empty,
// or if the object has been deleted. ok is false if there is none.
func (s Set[T, P]) For(ctx context.Context, id string) (v T, ok bool, err error) {
	all, err := s.List(ctx)
	if err != nil {
		return v, false, err
	}
	v, ok = s.choose(all, id)
	return v, ok, nil
}

// choose is For where all objects are those of the list.
func (s Set[T, P]) choose(all []T, id string) (v T, ok bool) {
	i := s.index(all, id)
	if i < 0 {
		i = s.defaultIndex(all)
	}
	if i < 0 {
		return v, false
	}
	return all[i], true
}

func (s Set[T, P]) owner(v *T) string { return s.noun + " " + *s.head(v).id }

// seal moves the secret values of v into its sealed field.
func (s Set[T, P]) seal(v *T) error {
	values := map[string]string{}
	for path, secret := range P(v).Secrets() {
		if *secret != "" {
			values[path] = *secret
			*secret = ""
		}
	}
	sealed := s.head(v).sealed
	*sealed = nil
	if len(values) == 0 {
		return nil
	}
	plain, err := json.Marshal(values)
	if err != nil {
		return err
	}
	if s.objects.Sealer != nil {
		*sealed = s.objects.Sealer.Seal(s.owner(v), string(plain))
	}
	if *sealed == nil {
		return fleet.Errorf(fleet.Unavailable, "%s is secret, and this server has no key to keep it encrypted: copy the folder trust of a server that has one, or leave it out",
			slices.Sorted(maps.Keys(values))[0])
	}
	return nil
}

// open puts the sealed values into their fields.
func (s Set[T, P]) open(v *T) error {
	sealed := s.head(v).sealed
	if len(*sealed) == 0 {
		return nil
	}
	plain, ok := "", false
	if s.objects.Sealer != nil {
		plain, ok = s.objects.Sealer.Open(s.owner(v), *sealed)
	}
	var values map[string]string
	if !ok || json.Unmarshal([]byte(plain), &values) != nil {
		return fleet.Errorf(fleet.Unavailable, "the secrets of %s cannot be decrypted: this server lacks the installation's encryption key, copy it from another server's folder trust", s.owner(v))
	}
	for path, secret := range P(v).Secrets() {
		*secret = values[path]
	}
	*sealed = nil
	return nil
}
