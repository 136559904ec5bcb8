package agents

import (
	"context"
	"encoding/hex"
	"net/http"
	"strconv"

	"github.com/gin-gonic/gin"

	"github.com/muster-fleet/muster/server/agents/limit"
	"github.com/muster-fleet/muster/server/api/httpapi"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// routeUploads adds the routes of files, which agents send for an action.
func (h *Handlers) routeUploads(e *gin.Engine) {
	e.POST(agentapi.PathUploads, h.limited(h.beginUpload))
	e.PUT(agentapi.PathUploads+"/:upload/:chunk", h.limited(h.uploadChunk))
	e.POST(agentapi.PathUploads+"/:upload", h.limited(h.endUpload))
	e.GET("/api/fleet/file/:file", h.limited(h.nothingFor("ErrNoFile", "file not found")))
	e.GET("/api/fleet/artifacts/:artifact/:sha2", h.limited(h.nothingFor("NotFound", "not found")))
}

// nothingFor answers an agent that requests what no policy and no operator of Muster can
// provide: files for hosts, and artifacts of Elastic Defend.
func (h *Handlers) nothingFor(code, message string) func(*gin.Context) error {
	return func(c *gin.Context) error {
		if _, err := h.agent(c, limit.Report); err != nil {
			return err
		}
		return &fleet.Error{Kind: fleet.NotFound, Code: code, Message: message}
	}
}

// readAtMost returns a body, or the error that Fleet Server has for one that is too long.
func readAtMost(c *gin.Context, size int64) ([]byte, error) {
	body, err := httpapi.ReadBody(c, size+1)
	if err == nil && int64(len(body)) > size {
		err = fleet.Errorf(fleet.TooLarge, "the body has more than %d bytes", size)
	}
	return body, err
}

func (h *Handlers) beginUpload(c *gin.Context) error {
	a, err := h.agent(c, limit.Report)
	if err != nil {
		return err
	}
	if err := h.enter(c, limit.Report, limit.UploadBeginMessage.Body); err != nil {
		return err
	}
	body, err := readAtMost(c, limit.UploadBeginMessage.Body)
	if err != nil {
		return err
	}
	if len(body) == 0 {
		return &fleet.Error{Kind: fleet.Invalid, Code: "ErrFileInfoBodyRequired", Message: "file info body is required"}
	}
	var req agentapi.UploadBegin
	if err := decode(c, limit.UploadBeginMessage, body, &req); err != nil {
		return err
	}
	switch req.AgentID {
	case a.ID:
	case "":
		return &fleet.Error{Kind: fleet.Invalid, Code: "ErrAgentIDMissing", Message: "required field agent_id is missing"}
	default:
		return &fleet.Error{Kind: fleet.Forbidden, Code: "ErrAgentIdentity", Message: "this API key belongs to another agent than " + req.AgentID}
	}
	var u fleet.Upload
	err = h.Health.Call(c.Request.Context(), func(ctx context.Context) (err error) {
		u, err = h.Uploads.Begin(ctx, a, req)
		return err
	})
	if err != nil {
		return err
	}
	c.JSON(http.StatusOK, agentapi.UploadBegun{ChunkSize: agentapi.ChunkSize, UploadID: u.ID})
	return nil
}

func (h *Handlers) uploadChunk(c *gin.Context) error {
	a, err := h.agent(c, limit.Report)
	if err != nil {
		return err
	}
	if err := refuseEncoded(c); err != nil {
		return err
	}
	n, err := strconv.Atoi(c.Param("chunk"))
	if err != nil {
		return fleet.FieldError("path.chunkNum", "is %q, want a number", c.Param("chunk"))
	}
	digest := c.GetHeader(agentapi.HeaderChunk)
	if b, err := hex.DecodeString(digest); err != nil || len(b) != 32 {
		return fleet.FieldError("header "+agentapi.HeaderChunk, "is %q, want the SHA-256 of the chunk in hexadecimal", digest)
	}
	ctx := c.Request.Context()
	var u fleet.Upload
	err = h.Health.Call(ctx, func(ctx context.Context) (err error) {
		u, err = h.Uploads.Open(ctx, a.ID, c.Param("upload"), n)
		return err
	})
	if err != nil {
		return err
	}
	// Before the body is read, so that chunks leave memory for check-ins.
	leave, err := h.Limits.EnterUpload(ctx, a.ID)
	if err != nil {
		return err
	}
	defer leave()
	httpapi.PaceBody(c)
	if err := h.enter(c, limit.Report, agentapi.ChunkSize); err != nil {
		return err
	}
	body, err := readAtMost(c, agentapi.ChunkSize)
	if err != nil {
		return err
	}
	if err := h.Health.Call(ctx, func(ctx context.Context) error { return h.Uploads.Chunk(ctx, u, n, digest, body) }); err != nil {
		return err
	}
	c.Status(http.StatusOK)
	return nil
}

func (h *Handlers) endUpload(c *gin.Context) error {
	a, err := h.agent(c, limit.Report)
	if err != nil {
		return err
	}
	if err := h.enter(c, limit.Report, limit.UploadEndMessage.Body); err != nil {
		return err
	}
	body, err := readAtMost(c, limit.UploadEndMessage.Body)
	if err != nil {
		return err
	}
	var req agentapi.UploadEnd
	if err := decode(c, limit.UploadEndMessage, body, &req); err != nil {
		return err
	}
	err = h.Health.Call(c.Request.Context(), func(ctx context.Context) error {
		return h.Uploads.Complete(ctx, a.ID, c.Param("upload"), req.TransitHash.SHA256)
	})
	if err != nil {
		return err
	}
	c.JSON(http.StatusOK, gin.H{"status": "ok"})
	return nil
}
