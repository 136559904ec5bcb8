package admin

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/muster-fleet/muster/packaging/pkg/trust/tuf"
	"github.com/muster-fleet/muster/server/agents/artifact/repository"
	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/api/httpapi"
	"github.com/muster-fleet/muster/server/fleet"
)

func (h *Handlers) trust(c *gin.Context) error {
	view, err := h.Trust.View(c.Request.Context())
	if err != nil {
		return err
	}
	out, err := renderTrust(view)
	return send(c, out, err)
}

func (h *Handlers) listTrustFiles(c *gin.Context) error {
	view, err := h.Trust.View(c.Request.Context())
	if err != nil {
		return err
	}
	all, err := tuf.Changes(tuf.Repository{}, view.Repository)
	if err != nil {
		return err
	}
	c.JSON(http.StatusOK, adminapi.TrustFileList{Items: each(all, func(f tuf.File) adminapi.TrustFile {
		return adminapi.TrustFile{Name: f.Name, Data: f.Data}
	})})
	return nil
}

// maxTrustUpload fits the largest targets file in base64 with hundreds of roots of the
// usual size. More roots can be uploaded before it.
const maxTrustUpload = 4 << 20

func (h *Handlers) publishTrustFiles(c *gin.Context) error {
	var req adminapi.PublishTrustFilesRequest
	if err := httpapi.DecodeStrict(c, maxTrustUpload, &req); err != nil {
		return err
	}
	if err := h.Trust.Publish(c.Request.Context(), req.Files, actor(c)); err != nil {
		return err
	}
	return h.trust(c)
}

// trustRoot returns the digest that new hosts pin. It is the newest root's: an older root
// may name keys that have been removed.
func trustRoot(v repository.View) *string {
	if v.Root() == nil {
		return nil
	}
	return ptr(tuf.Digest(v.Root()))
}

func renderTrust(v repository.View) (adminapi.Trust, error) {
	out := adminapi.Trust{
		Published: v.Root() != nil, TrustRoot: trustRoot(v), Problem: ptr(v.Problem), Warnings: v.Warnings,
		OnlineKeys: each(v.Online, tuf.PublicKey.String),
	}
	if out.Warnings == nil {
		out.Warnings = []string{}
	}
	if v.Root() == nil {
		return out, nil
	}
	spec, err := tuf.SpecOf(v.Root())
	if err != nil {
		return out, err
	}
	var before []byte
	if n := len(v.Roots); n > 1 {
		before = v.Roots[n-2]
	}
	if out.Root, err = renderRole(v.Root(), before, spec.Root); err != nil {
		return out, err
	}
	if v.Targets == nil {
		return out, nil
	}
	if out.Targets, err = renderRole(v.Targets, v.Root(), spec.Targets); err != nil {
		return out, err
	}
	contents, err := tuf.ContentsOf(v.Targets)
	if err != nil {
		return out, err
	}
	out.Floor, out.TargetCount = ptr(contents.Floor), len(contents.Targets)
	if out.Snapshot, err = renderOnline(v.Snapshot); err != nil {
		return out, err
	}
	out.Timestamp, err = renderOnline(v.Timestamp)
	return out, err
}

// renderRole describes a signed file, and which keys of signers have signed it. trusted is
// the root that names the signers.
func renderRole(file, trusted []byte, signers tuf.Signers) (*adminapi.TrustRole, error) {
	info, err := tuf.Inspect(file)
	if err != nil {
		return nil, err
	}
	progress, err := tuf.Signatures(file, trusted)
	if err != nil {
		return nil, err
	}
	signed := map[string]bool{}
	for _, n := range progress.Needs {
		for _, k := range n.Signed {
			signed[k.ID()] = true
		}
	}
	return &adminapi.TrustRole{
		File: info.FileName, Version: info.Version, Expires: info.Expires, Threshold: signers.Threshold,
		Keys: each(signers.Keys, func(k tuf.PublicKey) adminapi.TrustKey {
			return adminapi.TrustKey{Id: k.ID(), Name: k.Name, PublicKey: k.String(), Signed: signed[k.ID()]}
		}),
	}, nil
}

func renderOnline(file []byte) (*adminapi.TrustOnlineRole, error) {
	if file == nil {
		return nil, nil //nolint:nilnil // there is none yet
	}
	info, err := tuf.Inspect(file)
	return &adminapi.TrustOnlineRole{Version: info.Version, Expires: info.Expires}, err
}

// judge renders packages, with whether the signed targets file names them.
func (h *Handlers) judge(c *gin.Context, packages []fleet.Package) ([]adminapi.Package, error) {
	ctx := c.Request.Context()
	rooted, err := h.Trust.HasRoot(ctx)
	if err != nil {
		return nil, err
	}
	// SetWithheld changes its argument, and the caller uses packages afterwards.
	judged := append([]fleet.Package{}, packages...)
	if err := h.Trust.SetWithheld(ctx, judged); err != nil {
		return nil, err
	}
	return each(judged, func(p fleet.Package) adminapi.Package {
		out := renderPackage(p)
		if rooted && p.Maker == fleet.MakerMuster {
			signed := p.Withheld == ""
			out.Signed, out.Withheld = &signed, ptr(p.Withheld)
		}
		return out
	}), nil
}
