package admin

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"
)

// maxGrids bounds the cached answers: one of 100,000 targets has some ten megabytes. All browsers
// that show a rollout ask every few seconds, and the targets change in rounds of about a second.
const maxGrids = 8

type grid struct {
	body []byte
	tag  string // a hash of the body
}

// rolloutGrid answers with all targets of a rollout, or with 304 if they are as the caller has
// them: their states change without the rollout's generation, so the tag covers the answer.
func (h *Handlers) rolloutGrid(c *gin.Context) error {
	g, err := h.grids.Get(c.Request.Context(), rolloutID(c), h.Now.UTC(), func(ctx context.Context, _ time.Time) (grid, error) {
		v, err := h.Rollouts.Grid(ctx, rolloutID(c))
		if err != nil {
			return grid{}, err
		}
		body, err := json.Marshal(v)
		sum := sha256.Sum256(body)
		return grid{body, `"` + hex.EncodeToString(sum[:16]) + `"`}, err
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
