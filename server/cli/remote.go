package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"

	"github.com/muster-fleet/muster/packaging/pkg/trust/tuf"
	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/cli/packagecmd"
)

// remote is the server as package packagecmd uses it.
type remote struct{ client *client }

var _ packagecmd.Remote = remote{}

func (r remote) state(ctx context.Context) (adminapi.Trust, error) {
	return ask(ctx, r.client, adminapi.GetTrust, nil)
}

func (r remote) OnlineKeys(ctx context.Context) ([]tuf.PublicKey, error) {
	state, err := r.state(ctx)
	if err != nil {
		return nil, err
	}
	return tryEach(state.OnlineKeys, tuf.ParsePublicKey)
}

func (r remote) Files(ctx context.Context) ([][]byte, error) {
	list, err := ask(ctx, r.client, adminapi.ListTrustFiles, nil)
	return each(list.Items, func(f adminapi.TrustFile) []byte { return f.Data }), err
}

func (r remote) Publish(ctx context.Context, files ...[]byte) (string, error) {
	state, err := call(ctx, r.client, adminapi.PublishTrustFiles, adminapi.PublishTrustFilesRequest{Files: files})
	return deref(state.TrustRoot), err
}

func (r remote) Show(ctx context.Context, w io.Writer, asJSON bool) error {
	state, err := r.state(ctx)
	if err != nil {
		return err
	}
	if asJSON {
		return packagecmd.WriteJSON(w, state)
	}
	showTrust(w, state)
	return nil
}

func showTrust(w io.Writer, s adminapi.Trust) {
	if !s.Published {
		fmt.Fprintf(w, "no root is published: create one with `muster package keys init`\n")
	} else {
		fmt.Fprintf(w, "hosts trust it with --trust-root %s\n", deref(s.TrustRoot))
	}
	for _, r := range []*adminapi.TrustRole{s.Root, s.Targets} {
		if r == nil {
			continue
		}
		fmt.Fprintf(w, "%s  expires %s, needs %d of these keys\n", r.File, atTime(r.Expires), r.Threshold)
		for _, k := range r.Keys {
			signed := "has not signed"
			if k.Signed {
				signed = "signed"
			}
			fmt.Fprintf(w, "  %s  %-14s %s\n", k.Id[:16], signed, k.Name)
		}
	}
	if s.Targets != nil {
		fmt.Fprintf(w, "  %d archives, floor %s\n", s.TargetCount, cmp.Or(deref(s.Floor), "none"))
	}
	if s.Timestamp != nil {
		fmt.Fprintf(w, "timestamp.json  expires %s\n", atTime(s.Timestamp.Expires))
	}
	for _, k := range s.OnlineKeys {
		fmt.Fprintf(w, "online key  %s\n", k)
	}
	for _, text := range s.Warnings {
		fmt.Fprintf(w, "warning: %s\n", text)
	}
	if s.Problem != nil {
		fmt.Fprintf(w, "problem: %s\n", *s.Problem)
	}
}
