package admin

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/gin-gonic/gin"
	"golang.org/x/sync/singleflight"
)

const (
	// gridFreshFor is how long an answer is given again: all browsers that show a rollout ask every
	// few seconds, and the targets change in rounds of about a second.
	gridFreshFor = 2 * time.Second
	// maxGrids bounds the cached answers: one of 100,000 targets has some ten megabytes.
	maxGrids = 8
	// gridTimeout bounds a read, which requests share, so the end of one must not cancel it.
	gridTimeout = 30 * time.Second
)

// grids caches the encoded grids of rollouts for gridFreshFor, and reads once for concurrent
// requests.
type grids struct {
	flights singleflight.Group
	mu      sync.Mutex
	cached  map[string]grid
}

type grid struct {
	body []byte
	tag  string // a hash of the body
	at   time.Time
}

func (g grid) fresh(now time.Time) bool {
	age := now.Sub(g.at)
	return 0 <= age && age < gridFreshFor
}

// rolloutGrid answers with all targets of a rollout, or with 304 if they are as the caller has
// them: their states change without the rollout's generation, so the tag covers the answer.
func (h *Handlers) rolloutGrid(c *gin.Context) error {
	g, err := h.grids.get(c.Request.Context(), rolloutID(c), h.Now.UTC(), func(ctx context.Context) ([]byte, error) {
		v, err := h.Rollouts.Grid(ctx, rolloutID(c))
		if err != nil {
			return nil, err
		}
		return json.Marshal(v)
	})
	if err != nil {
		return err
	}
	c.Header("ETag", g.tag)
	if c.GetHeader("If-None-Match") == g.tag {
		c.Status(http.StatusNotModified)
		return nil
	}
	c.Data(http.StatusOK, "application/json; charset=utf-8", g.body)
	return nil
}

func (s *grids) get(ctx context.Context, id string, now time.Time, read func(context.Context) ([]byte, error)) (grid, error) {
	s.mu.Lock()
	g, ok := s.cached[id]
	s.mu.Unlock()
	if ok && g.fresh(now) {
		return g, nil
	}
	done := s.flights.DoChan(id, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), gridTimeout)
		defer cancel()
		body, err := read(ctx)
		if err != nil {
			return grid{}, err
		}
		sum := sha256.Sum256(body)
		g := grid{body: body, tag: `"` + hex.EncodeToString(sum[:16]) + `"`, at: now}
		s.store(id, g)
		return g, nil
	})
	select {
	case r := <-done:
		g, _ := r.Val.(grid)
		return g, r.Err
	case <-ctx.Done():
		return grid{}, ctx.Err()
	}
}

func (s *grids) store(id string, g grid) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for other, kept := range s.cached {
		if !kept.fresh(g.at) {
			delete(s.cached, other)
		}
	}
	if s.cached == nil || len(s.cached) >= maxGrids {
		s.cached = map[string]grid{}
	}
	s.cached[id] = g
}
