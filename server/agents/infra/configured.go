package infra

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store/audit"
)

// serversSetting is the store's setting that has what servers contributed to policies when
// they started.
const serversSetting = "policy-servers"

// maxServers bounds the setting. It is more than the servers of an installation, since
// containers start under a new name each time.
const maxServers = 100

// contribution is what one server contributes to policies.
type contribution struct {
	Server string `json:"server"`
	Digest string `json:"digest"`
}

// digest identifies what the server contributes. Guessed addresses are all the same: they
// change with the machine's name, and nobody has decided on them.
func (s Server) digest() string {
	if s.Guessed {
		return "guessed"
	}
	sum := sha256.Sum256([]byte(s.AgentsURL + "\n" + s.CA))
	return hex.EncodeToString(sum[:])
}

// NoticeConfiguration gives a new revision to the policies that use what this server
// contributes, if the configuration has changed that since the server started before. The
// server calls it at every start, with a name that no other server of the store has.
//
// Servers of one store may have different addresses: each then sends its own to the agents
// that poll it. So a server compares with what it contributed itself. If it compared with the
// server that started last, such servers would give all policies a new revision at each
// restart. And where a new address reaches the servers one by one, the first would be the
// only one to do so, and the agents that got its revision from another server, with the old
// address, would keep that. A name that is new is compared with the server whose contribution
// is the newest.
//
// An address that is guessed is not sent to agents: they keep the one that they have.
func (s *Service) NoticeConfiguration(ctx context.Context, name string) error {
	var known []contribution
	raw, err := s.Store.Settings().Get(ctx, serversSetting)
	switch {
	case err == nil:
		_ = json.Unmarshal(raw, &known) // a server wrote it
	case fleet.KindOf(err) != fleet.NotFound:
		return err
	}
	own := contribution{Server: name, Digest: s.Server.digest()}
	if slices.Contains(known, own) {
		return nil
	}
	if last := lastOf(known, name); last != nil && last.Digest != own.Digest && !s.Server.Guessed {
		if err := s.bumpConfigured(ctx); err != nil {
			return err
		}
	}
	known = slices.DeleteFunc(known, func(c contribution) bool { return c.Server == name })
	known = append(known, own)
	if raw, err = json.Marshal(known[max(0, len(known)-maxServers):]); err != nil {
		return err
	}
	// A server that starts at the same moment may write its own list instead. This one is then
	// new at its next start, and compared with that.
	if err := s.Store.Settings().Delete(ctx, serversSetting); err != nil {
		return err
	}
	_, err = s.Store.Settings().GetOrPut(ctx, serversSetting, raw)
	return err
}

// lastOf returns the contribution of the server with a name, or else the newest; nil if there
// is none.
func lastOf(known []contribution, name string) *contribution {
	if len(known) == 0 {
		return nil
	}
	if i := slices.IndexFunc(known, func(c contribution) bool { return c.Server == name }); i >= 0 {
		return &known[i]
	}
	return &known[len(known)-1]
}

// bumpConfigured gives a new revision to the policies that use a built-in object.
func (s *Service) bumpConfigured(ctx context.Context) error {
	hosts, err := s.Hosts().List(ctx)
	if err != nil {
		return err
	}
	sources, err := s.Sources().List(ctx)
	if err != nil {
		return err
	}
	const actor = "muster"
	err = audit.Record(ctx, s.Store.Audit(), s.Now.UTC(), fleet.AuditEntry{
		Actor: actor, Verb: "fleet_server_host.update", Subject: DefaultHostID,
		Text: "gave a new revision to the policies that send agents to this server: its configuration has another address or CA, " + s.Server.AgentsURL,
	})
	if err != nil {
		return err
	}
	return s.Policies.Bump(ctx, func(p fleet.Policy) bool {
		return slices.ContainsFunc(hosts, func(v fleet.FleetServerHost) bool { return v.Revision == 0 && usesHost(p, &v) }) ||
			slices.ContainsFunc(sources, func(v fleet.DownloadSource) bool { return v.Revision == 0 && usesSource(p, &v) })
	}, actor)
}
