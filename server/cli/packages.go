package cli

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/muster-fleet/muster/packaging/trust"
	"github.com/muster-fleet/muster/server/adminapi"
)

func (a *app) newPackageList() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List what the server has published",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			got, err := call[adminapi.PackageList](cmd.Context(), a, http.MethodGet, "/api/v1/packages", nil)
			if err != nil {
				return err
			}
			return a.show(cmd.OutOrStdout(), got, func(w io.Writer) {
				table(w, "VERSION\tPLATFORM\tSIZE\tHASH\tSIGNED BY\tPUSHED", func(add func(...any)) {
					for _, p := range got.Items {
						add(p.Version, p.Os+"/"+p.Arch, fmt.Sprintf("%.1f MB", float64(p.Size)/1e6), p.Hash[:min(12, len(p.Hash))], p.KeyId, p.PushedAt.Local().Format(time.DateTime))
					}
				})
			})
		},
	}
}

func (a *app) newPackagePush() *cobra.Command {
	return &cobra.Command{
		Use:     "push ARCHIVE…",
		Short:   "Publish signed packages on the server",
		Long:    "Publishes archives, each with its signature ARCHIVE.minisig beside it. Pushing the same bytes again changes nothing.",
		Example: "  muster package push muster-agent-1.1.0-linux-amd64.tar.gz",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("no archive is named")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, archive := range args {
				if err := a.push(cmd, archive); err != nil {
					return fmt.Errorf("%s: %w", archive, err)
				}
			}
			return nil
		},
	}
}

func (a *app) push(cmd *cobra.Command, archive string) error {
	t, err := a.target.resolve()
	if err != nil {
		return err
	}
	signature, err := os.ReadFile(archive + trust.SignatureSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: sign it first with `muster package sign --key KEY %s`", err, archive)
	}
	if err != nil {
		return err
	}
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	name := filepath.Base(archive)
	body := io.Reader(f)
	if term.IsTerminal(int(os.Stderr.Fd())) {
		body = &progress{r: f, total: fi.Size(), out: cmd.ErrOrStderr(), name: name}
	}
	header := http.Header{"Muster-Signature": {base64.StdEncoding.EncodeToString(signature)}, "Content-Type": {"application/octet-stream"}}
	resp, err := t.do(cmd.Context(), http.MethodPut, "/api/v1/packages/"+url.PathEscape(name), header, body, fi.Size())
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var got adminapi.PackageItem
	if err := json.NewDecoder(resp.Body).Decode(&got); err != nil {
		return err
	}
	return a.show(cmd.OutOrStdout(), got, func(w io.Writer) {
		fmt.Fprintf(w, "published %s for %s/%s (sha256 %s)\n", got.Item.Version, got.Item.Os, got.Item.Arch, got.Item.Sha256)
	})
}

// progress tells how far an upload is, once a second.
type progress struct {
	r           io.Reader
	total, done int64
	out         io.Writer
	name        string
	last        time.Time
}

func (p *progress) Read(b []byte) (int, error) {
	n, err := p.r.Read(b)
	p.done += int64(n)
	if now := time.Now(); now.Sub(p.last) > time.Second {
		p.last = now
		fmt.Fprintf(p.out, "\r%s  %d %%", p.name, p.done*100/max(p.total, 1))
	}
	if err != nil && !p.last.IsZero() {
		fmt.Fprintf(p.out, "\r%s\r", strings.Repeat(" ", len(p.name)+8))
	}
	return n, err
}

func (a *app) newPackageTrust() *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "trust KEY",
		Short: "Let the server take in packages signed by a publisher key",
		Long: `Adds a public key, given as a .pub file or as text, to those whose packages the
server takes in. It does not change what enrolled agents trust: that is fixed at
their enrolment.`,
		Example: "  muster package trust release.pub --name release",
		Args:    oneArg("one public key, as a file or as text"),
		RunE: func(cmd *cobra.Command, args []string) error {
			text := args[0]
			if b, err := os.ReadFile(text); err == nil {
				text = string(b)
			}
			got, err := call[adminapi.PublisherKeyItem](cmd.Context(), a, http.MethodPost, "/api/v1/publisher_keys", adminapi.AddPublisherKeyRequest{PublicKey: text, Name: &name})
			if err != nil {
				return err
			}
			return a.show(cmd.OutOrStdout(), got, func(w io.Writer) { fmt.Fprintf(w, "the server takes in packages signed by %s\n", got.Item.Id) })
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "what to call the key")
	return cmd
}

func (a *app) newPackageWithdraw() *cobra.Command {
	return &cobra.Command{
		Use:   "withdraw FILE",
		Short: "Withdraw a package from the server",
		Args:  oneArg("the name of one published archive"),
		RunE: func(cmd *cobra.Command, args []string) error {
			got, err := call[adminapi.ActionWord](cmd.Context(), a, http.MethodDelete, "/api/v1/packages/"+url.PathEscape(args[0]), nil)
			if err != nil {
				return err
			}
			return a.show(cmd.OutOrStdout(), got, func(w io.Writer) { fmt.Fprintln(w, "withdrawn") })
		},
	}
}
