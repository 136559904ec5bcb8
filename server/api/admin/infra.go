package admin

import (
	"context"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/muster-fleet/muster/server/agents/infra"
	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/api/httpapi"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/fleet/strict"
)

// routeInfra adds the routes of the objects that agents' policies are made from.
func (h *Handlers) routeInfra(on bind) {
	routeObjects(on, fiveCalls{adminapi.ListFleetServerHosts.Call, adminapi.CreateFleetServerHost.Call, adminapi.GetFleetServerHost.Call, adminapi.UpdateFleetServerHost.Call, adminapi.DeleteFleetServerHost.Call}, func(c *gin.Context) (editor[fleet.FleetServerHost], error) {
		overrideLimit, err := queryBool(c, "override_limit")
		return h.Infra.EditHosts(overrideLimit), err
	}, "override_limit")
	routeObjects(on, fiveCalls{adminapi.ListDownloadSources.Call, adminapi.CreateDownloadSource.Call, adminapi.GetDownloadSource.Call, adminapi.UpdateDownloadSource.Call, adminapi.DeleteDownloadSource.Call}, func(*gin.Context) (editor[fleet.DownloadSource], error) {
		return h.Infra.EditSources(), nil
	})
	routeObjects(on, fiveCalls{adminapi.ListFleetProxies.Call, adminapi.CreateFleetProxy.Call, adminapi.GetFleetProxy.Call, adminapi.UpdateFleetProxy.Call, adminapi.DeleteFleetProxy.Call}, func(c *gin.Context) (editor[fleet.FleetProxy], error) {
		return h.Infra.EditProxies(c.Request.Context())
	})
	routeObjects(on, fiveCalls{adminapi.ListOutputs.Call, adminapi.CreateOutput.Call, adminapi.GetOutput.Call, adminapi.UpdateOutput.Call, adminapi.DeleteOutput.Call}, func(*gin.Context) (editor[fleet.Output], error) {
		return h.Infra.EditOutputs(), nil
	})
}

// editor is what the routes use of an infra.Editor.
type editor[T any] interface {
	List(ctx context.Context) ([]T, error)
	Get(ctx context.Context, id string) (T, error)
	Create(ctx context.Context, given infra.Fields, actor string) (T, error)
	Update(ctx context.Context, id string, given infra.Fields, actor string) (T, error)
	Delete(ctx context.Context, id, actor string) error
}

// fiveCalls are the operations on one kind of object.
type fiveCalls struct{ list, create, get, update, remove *adminapi.Call }

// routeObjects binds the operations on one kind of object. changes are the parameters of those that
// change one.
func routeObjects[T any](on bind, calls fiveCalls, open func(*gin.Context) (editor[T], error), changes ...string) {
	id := func(c *gin.Context) string { return c.Params[0].Value }
	handle := func(f func(c *gin.Context, e editor[T]) (any, error)) func(*gin.Context) error {
		return func(c *gin.Context) error {
			if err := onlyQuery(c, changes...); err != nil {
				return err
			}
			e, err := open(c)
			if err != nil {
				return err
			}
			answer, err := f(c, e)
			if err != nil {
				return err
			}
			c.JSON(http.StatusOK, answer)
			return nil
		}
	}
	item := func(v T, err error) (any, error) { return map[string]T{"item": v}, err }
	// All objects are on one page, as in Kibana.
	on(calls.list, handle(func(c *gin.Context, e editor[T]) (any, error) {
		all, err := e.List(c.Request.Context())
		return objectPage[T]{Items: all, Total: len(all), Page: 1, PerPage: maxPerPage}, err
	}))
	on(calls.create, handle(func(c *gin.Context, e editor[T]) (any, error) {
		given, err := decodeFields[T](c)
		if err != nil {
			return nil, err
		}
		return item(e.Create(c.Request.Context(), given, actor(c)))
	}))
	on(calls.get, handle(func(c *gin.Context, e editor[T]) (any, error) {
		return item(e.Get(c.Request.Context(), id(c)))
	}))
	on(calls.update, handle(func(c *gin.Context, e editor[T]) (any, error) {
		given, err := decodeFields[T](c)
		if err != nil {
			return nil, err
		}
		return item(e.Update(c.Request.Context(), id(c), given, actor(c)))
	}))
	on(calls.remove, handle(func(c *gin.Context, e editor[T]) (any, error) {
		return adminapi.DeletedObject{Id: id(c)}, e.Delete(c.Request.Context(), id(c), actor(c))
	}))
}

type objectPage[T any] struct {
	Items   []T `json:"items"`
	Total   int `json:"total"`
	Page    int `json:"page"`
	PerPage int `json:"perPage"`
}

// decodeFields reads the fields of an object, and checks that those of T have its types.
func decodeFields[T any](c *gin.Context) (infra.Fields, error) {
	body, err := httpapi.ReadBody(c, maxBody)
	if err != nil {
		return nil, err
	}
	var given infra.Fields
	if err := httpapi.DecodeStrictJSON(body, &given, strict.Options{}); err != nil {
		return nil, err
	}
	if given == nil {
		return nil, fleet.FieldError("body", "expected a plain object value, but found [null] instead.")
	}
	// Package infra moves secrets, and refuses the fields that an object of its type must not have.
	err = httpapi.DecodeStrictJSON(body, new(T), strict.Options{Unknown: func(path, name string, known []string) (string, bool) {
		if path == name {
			return "definition for this key is missing", name == "secrets"
		}
		return httpapi.UnknownKey(path, name, known)
	}})
	if err != nil {
		return nil, err
	}
	return given, nil
}
