package inventory

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

// A list of a point in time that is sorted by a field that changes, such as last_checkin, is kept
// with its first page: pages that are read by the values of the field miss the agents that move
// to a page that was read, and repeat those that move to one that was not. A list by enrolled_at
// needs none of this.
const (
	// maxListings bounds the lists that are kept: scripts that page through the fleet at the same
	// time. One of 100,000 agents has 4 MB.
	maxListings = 8
	// maxListingTime bounds how long one is kept after its last page: the next one is read as soon
	// as the last has been handled.
	maxListingTime = 15 * time.Minute
	// maxListed bounds the agents of one: twice what a server is made for.
	maxListed = 200_000
)

// listingKey identifies a list of a point in time.
func listingKey(at Page, q store.AgentQuery, parts ...any) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%t\x00%q", at.PIT, q.Sort, q.Desc, parts))
	return hex.EncodeToString(sum[:16])
}

// ofListing returns a page of a list that is kept under an id.
func (s *Service) ofListing(ctx context.Context, id string, at Page, q store.AgentQuery) ([]fleet.Agent, int, error) {
	listing, err := s.agentListing(ctx, id, at, q)
	if err != nil {
		return nil, 0, err
	}
	ids, from := listing.AgentIDs, q.Offset
	if q.After != nil {
		i := slices.Index(ids, q.After.ID)
		if i < 0 {
			return nil, 0, fleet.FieldError("query.searchAfter", "is no position in this point in time: send nextSearchAfter of its last page")
		}
		from = i + 1
	}
	total := len(ids)
	ids = ids[min(from, total):]
	for len(ids) > 0 && q.Limit > 0 {
		n := min(q.Limit, len(ids))
		page, err := s.Store.Agents().GetMany(ctx, ids[:n])
		if err != nil || len(page) > 0 {
			return page, total, err
		}
		ids = ids[n:] // all of them were deleted since: an empty page would be the end
	}
	return []fleet.Agent{}, total, nil
}

// agentListing returns the list with an id, which the request of its first page makes.
func (s *Service) agentListing(ctx context.Context, id string, at Page, q store.AgentQuery) (fleet.AgentListing, error) {
	listings, now := s.Store.AgentListings(), s.Now.UTC()
	until := now.Add(min(at.Alive, maxListingTime))
	listing, err := listings.Get(ctx, id)
	switch {
	case err == nil && !listing.Until.Before(now):
		if left := listing.Until.Sub(now); left < until.Sub(now)/2 {
			listing.Until = until
			if _, err := listings.Update(ctx, listing); err != nil && fleet.KindOf(err) != fleet.Conflict && fleet.KindOf(err) != fleet.NotFound {
				return listing, err
			}
		}
		return listing, nil
	case err != nil && fleet.KindOf(err) != fleet.NotFound:
		return listing, err
	case q.After != nil || q.Offset > 0:
		return listing, fleet.Errorf(fleet.NotFound, "the point in time has expired for this list, which is kept for pitKeepAlive after each page, and %s at most: open another with openPit", maxListingTime)
	}
	fresh := fleet.AgentListing{ID: id, Until: until}
	if fresh.AgentIDs, err = s.listingIDs(ctx, q); err != nil {
		return listing, err
	}
	return store.Exclusively(ctx, s.Store, "points in time", func(ctx context.Context) (fleet.AgentListing, error) {
		all, _, err := listings.List(ctx, 0, 0)
		if err != nil {
			return fresh, err
		}
		kept, first := 0, until
		for _, o := range all {
			switch {
			case o.ID == id && !o.Until.Before(now):
				return o, nil // another request for the first page came before
			case o.ID == id || o.Until.Before(now):
				if err := listings.Delete(ctx, o.ID); err != nil {
					return fresh, err
				}
			default:
				kept++
				if o.Until.Before(first) {
					first = o.Until
				}
			}
		}
		if kept >= maxListings {
			e := fleet.Errorf(fleet.TooMany, "%d points in time are being read by a field that changes, which is the most: sort by enrolled_at, or wait until one ends", kept)
			e.RetryAfter = max(first.Sub(now), time.Second)
			return fresh, e
		}
		return fresh, listings.Create(ctx, fresh)
	})
}

// listingIDs returns the ids of the agents that a query selects, in its order, as of one moment.
func (s *Service) listingIDs(ctx context.Context, q store.AgentQuery) ([]string, error) {
	var list []store.AgentPosition
	err := s.Store.Agents().Each(ctx, q.AgentFilter, func(a fleet.Agent) {
		if len(list) <= maxListed {
			list = append(list, q.Sort.Position(&a))
		}
	})
	if err != nil {
		return nil, err
	}
	if len(list) > maxListed {
		return nil, fleet.FieldError("query.sortField", "is %q: a point in time of more than %d agents can be sorted by enrolled_at only", string(q.Sort), maxListed)
	}
	slices.SortFunc(list, func(a, b store.AgentPosition) int {
		if q.Desc {
			a, b = b, a
		}
		return comparePositions(a, b)
	})
	ids := make([]string, len(list))
	for i, p := range list {
		ids[i] = p.ID
	}
	return ids, nil
}

// comparePositions compares as stores do: no value comes before every value, and ids break ties.
func comparePositions(a, b store.AgentPosition) int {
	order := 0
	switch x := a.Value.(type) {
	case time.Time:
		if y, ok := b.Value.(time.Time); ok {
			order = x.Compare(y)
		} else {
			order = 1
		}
	case string:
		if y, ok := b.Value.(string); ok {
			order = strings.Compare(x, y)
		} else {
			order = 1
		}
	default:
		if b.Value != nil {
			order = -1
		}
	}
	return cmp.Or(order, strings.Compare(a.ID, b.ID))
}
