package admin

import (
	"cmp"
	"encoding/base64"
	"net/http"
	"slices"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/muster-fleet/muster/server/agents/artifact"
	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
)

// routePackages adds the routes of packages.
func (h *Handlers) routePackages(on bind) {
	on(adminapi.ListPackages.Call, h.listPackages)
	on(adminapi.PushPackage.Call, h.pushPackage)
	on(adminapi.DeletePackage.Call, h.deletePackage)
	on(adminapi.ListPublisherKeys.Call, h.listPublisherKeys)
	on(adminapi.AddPublisherKey.Call, h.addPublisherKey)
	on(adminapi.RemovePublisherKey.Call, h.removePublisherKey)
	on(adminapi.GetTrust.Call, h.trust)
	on(adminapi.ListTrustFiles.Call, h.listTrustFiles)
	on(adminapi.PublishTrustFiles.Call, h.publishTrustFiles)
	on(adminapi.ListAvailableVersions.Call, h.availableVersions)
}

func renderPackage(p fleet.Package) adminapi.Package {
	return adminapi.Package{
		File: p.File, Version: p.Version, Snapshot: p.Snapshot, Hash: p.Hash, Os: p.OS, Arch: p.Arch, Size: p.Size,
		Sha256: p.SHA256, Sha512: p.SHA512, KeyId: p.KeyID, PushedAt: p.PushedAt, PushedBy: ptr(p.PushedBy),
		Maker: (*adminapi.Maker)(ptr(string(p.Maker))), Component: ptr(p.Component), Runtime: ptr(p.Runtime),
	}
}

func (h *Handlers) listPackages(c *gin.Context) error {
	packages, err := h.Artifacts.Packages(c.Request.Context())
	if err != nil {
		return err
	}
	judged, err := h.judge(c, packages)
	if err != nil {
		return err
	}
	order := map[string]int{}
	for i, v := range fleet.Catalog(packages).Versions() {
		order[v] = i
	}
	slices.SortFunc(judged, func(a, b adminapi.Package) int {
		return cmp.Or(cmp.Compare(deref(a.Component), deref(b.Component)), cmp.Compare(order[a.Version], order[b.Version]), cmp.Compare(a.File, b.File))
	})
	c.JSON(http.StatusOK, adminapi.PackageList{Items: judged})
	return nil
}

// pushTimeout bounds one upload: 2 GiB at 300 kB/s.
const pushTimeout = 2 * time.Hour

func (h *Handlers) pushPackage(c *gin.Context) error {
	file := c.Param("file")
	var err error
	proof := artifact.ElasticProof{SHA512: c.GetHeader("Muster-Sha512")}
	if proof.OpenPGP, err = base64.StdEncoding.DecodeString(c.GetHeader("Muster-Openpgp-Signature")); err != nil {
		return fleet.FieldError("header.Muster-Openpgp-Signature", "is not base64: send the .asc file in base64: %w", err)
	}
	rc := http.NewResponseController(c.Writer)
	_ = rc.SetReadDeadline(time.Now().Add(pushTimeout))
	_ = rc.SetWriteDeadline(time.Now().Add(pushTimeout))
	body := http.MaxBytesReader(c.Writer, c.Request.Body, artifact.MaxPackage+1)
	var p fleet.Package
	if artifact.IsElastic(file) {
		p, err = h.Artifacts.PushElastic(c.Request.Context(), file, proof, body, actor(c))
	} else {
		p, err = h.Artifacts.Push(c.Request.Context(), file, body, actor(c))
	}
	if err != nil {
		return err
	}
	judged, err := h.judge(c, []fleet.Package{p})
	if err != nil {
		return err
	}
	c.JSON(http.StatusOK, adminapi.PackageItem{Item: judged[0]})
	return nil
}

func (h *Handlers) deletePackage(c *gin.Context) error {
	return send(c, adminapi.ActionWord{Action: "deleted"}, h.Artifacts.Delete(c.Request.Context(), c.Param("file"), actor(c)))
}

func (h *Handlers) listPublisherKeys(c *gin.Context) error {
	keys, err := h.Artifacts.PublisherKeys(c.Request.Context())
	return send(c, adminapi.PublisherKeyList{Items: orEmpty(keys)}, err)
}

func (h *Handlers) addPublisherKey(c *gin.Context) error {
	var req adminapi.AddPublisherKeyRequest
	if err := decode(c, &req); err != nil {
		return err
	}
	name := ""
	if req.Name != nil {
		name = *req.Name
	}
	k, err := h.Artifacts.AddKey(c.Request.Context(), req.PublicKey, name, actor(c))
	return send(c, adminapi.PublisherKeyItem{Item: k}, err)
}

func (h *Handlers) removePublisherKey(c *gin.Context) error {
	return send(c, adminapi.ActionWord{Action: "deleted"}, h.Artifacts.RemoveKey(c.Request.Context(), c.Param("keyId"), actor(c)))
}
