package cli

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/packaging/pkg/trust/tuf"
	"github.com/muster-fleet/muster/server/agents/artifact"
	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/cli/packagecmd"
)

func (a *client) newPackageList() *cobra.Command {
	return showing(a, &cobra.Command{Use: "list", Short: "List the packages the server has published"}, adminapi.ListPackages, func(w io.Writer, got adminapi.PackageList) {
		tableOf(w, "VERSION\tCOMPONENT\tRUNTIME\tPLATFORM\tSIZE\tHASH\tSIGNED BY\tIN TARGETS\tPUSHED", got.Items, func(p adminapi.Package) []any {
			platform := p.Os + "/" + p.Arch
			if p.Maker != nil {
				platform += ", Elastic"
			}
			inTargets := "-"
			if p.Signed != nil {
				inTargets = yesNo(*p.Signed)
			}
			return []any{
				p.Version, cmp.Or(deref(p.Component), "-"), cmp.Or(deref(p.Runtime), "-"), platform, packagecmd.SizeText(p.Size), p.Hash[:min(12, len(p.Hash))],
				cmp.Or(p.KeyId, "-"), inTargets, atTime(p.PushedAt),
			}
		})
		for _, p := range got.Items {
			if p.Withheld != nil {
				fmt.Fprintf(w, "%s: hosts that trust the root do not install it: %s\n", p.File, *p.Withheld)
			}
		}
	})
}

func (a *client) packages(ctx context.Context) (adminapi.PackageList, error) {
	return ask(ctx, a, adminapi.ListPackages, nil)
}

func (a *client) newPackagePush() *cobra.Command {
	edit := packagecmd.TargetsEdit{Remote: remote{a}}
	var floor string
	var elastic bool
	cmd := &cobra.Command{
		Use:   "push ARCHIVE…",
		Short: "Publish packages on the server",
		Long: `Publish archives on the server. Pushing the same archive again changes nothing.

With --targets-key the archives are also added to the signed targets file, which hosts
need (see ` + "`muster package keys --help`" + `). A server without a root gets yours. If more
people have to sign, hosts do not install the packages yet, and the file is written to
the folder for the next person to sign.

With --elastic the archives are Elastic's own, for Elastic Agents. Each keeps its name
and needs ARCHIVE.sha512 and ARCHIVE.asc beside it, as Elastic publishes them. Add
Elastic's OpenPGP key before, with ` + "`muster package trust KEY.asc`" + `.`,
		Example: `  muster package push muster-agent-1.1.0-linux-amd64.tar.gz --targets-key release/targets-1.key
  muster package push muster-agent-1.1.0-linux-amd64.tar.gz
  muster package push --elastic elastic-agent-8.15.5-linux-x86_64.tar.gz`,
		Args: someArgs("no archive is named"),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch own := slices.ContainsFunc(args, func(archive string) bool { return !isElastic(archive) }); {
			case elastic && (len(edit.Keys) > 0 || floor != ""):
				return &usageError{errors.New("--elastic excludes --targets-key and --floor: Muster's agents never install Elastic's packages")}
			case elastic && own:
				return &usageError{errors.New("--elastic is for archives with Elastic's own names, such as elastic-agent-8.15.5-linux-x86_64.tar.gz")}
			case !elastic && slices.ContainsFunc(args, isElastic):
				return &usageError{errors.New("a package of Elastic's needs --elastic: Muster's agents do not install it")}
			}
			if len(edit.Keys) > 0 {
				return a.pushSigned(cmd, edit, floor, args)
			}
			if floor != "" {
				return &usageError{errors.New("--floor needs --targets-key: it is part of the signed targets file")}
			}
			for _, archive := range args {
				p, err := a.push(cmd, archive)
				if err != nil {
					return fmt.Errorf("%s: %w", archive, err)
				}
				if err := a.showPushed(cmd, p); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&elastic, "elastic", false, "the archives are Elastic's, for Elastic Agents")
	packagecmd.AddFloorFlag(cmd, &floor)
	edit.AddFlags(cmd)
	return cmd
}

func (a *client) showPushed(cmd *cobra.Command, p adminapi.Package) error {
	return a.show(cmd.OutOrStdout(), adminapi.PackageItem{Item: p}, func(w io.Writer) {
		what := p.Version
		if p.Component != nil {
			what = *p.Component + " " + what
		}
		fmt.Fprintf(w, "published %s for %s/%s (sha256 %s)\n", what, p.Os, p.Arch, p.Sha256)
		if p.Withheld != nil {
			fmt.Fprintf(w, "  hosts that trust the root do not install it yet: %s\n", *p.Withheld)
		}
	})
}

// pushSigned uploads archives and adds them to the signed targets file. It checks keys
// and archives before it sends anything. It uploads the archives before the file that
// names them, so that no host is sent to a missing archive.
func (a *client) pushSigned(cmd *cobra.Command, edit packagecmd.TargetsEdit, floor string, archives []string) error {
	ctx := cmd.Context()
	prepared, err := edit.Prepare(cmd)
	if err != nil {
		return err
	}
	targets, err := packagecmd.TargetsOf(cmd, archives)
	if err != nil {
		return err
	}
	change, err := packagecmd.Adding(targets, floor)
	if err != nil {
		return err
	}
	if err := prepared.PublishRoots(ctx); err != nil {
		return err
	}
	for _, archive := range archives {
		if _, err := a.push(cmd, archive); err != nil {
			return fmt.Errorf("%s: %w", archive, err)
		}
	}
	signed, err := prepared.Run(ctx, change)
	if err != nil {
		return err
	}
	list, err := a.packages(ctx)
	if err != nil {
		return err
	}
	for _, p := range list.Items {
		if slices.ContainsFunc(targets, func(t tuf.Target) bool { return t.FileName() == p.File }) {
			if err := a.showPushed(cmd, p); err != nil {
				return err
			}
		}
	}
	return a.show(cmd.OutOrStdout(), signed, signed.Human)
}

func isElastic(archive string) bool { return artifact.IsElastic(filepath.Base(archive)) }

// proofOf returns the headers with what is beside an archive of Elastic's.
func proofOf(archive string) (http.Header, error) {
	header := http.Header{}
	if !isElastic(archive) {
		return header, nil
	}
	const remedy = "download it from where the archive is from, and put it beside the archive"
	sum, err := os.ReadFile(archive + artifact.SHA512Suffix)
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, remedy)
	}
	// The form of sha512sum: a digest and a name.
	fields := strings.Fields(string(sum))
	if len(fields) != 2 || strings.TrimPrefix(fields[1], "*") != filepath.Base(archive) {
		return nil, fmt.Errorf("%s%s: is not the digest of %s: %s", archive, artifact.SHA512Suffix, filepath.Base(archive), remedy)
	}
	signature, err := os.ReadFile(archive + artifact.OpenPGPSuffix)
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, remedy)
	}
	header["Muster-Sha512"] = []string{fields[0]}
	header["Muster-Openpgp-Signature"] = []string{base64.StdEncoding.EncodeToString(signature)}
	return header, nil
}

func (a *client) push(cmd *cobra.Command, archive string) (adminapi.Package, error) {
	var got adminapi.PackageItem
	header, err := proofOf(archive)
	if err != nil {
		return got.Item, err
	}
	header["Content-Type"] = []string{"application/octet-stream"}
	f, err := os.Open(archive)
	if err != nil {
		return got.Item, err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return got.Item, err
	}
	name := filepath.Base(archive)
	progress := packagecmd.NewProgress(cmd.ErrOrStderr(), name, fi.Size())
	defer progress.Done()
	resp, err := a.open(cmd.Context(), request{call: adminapi.PushPackage.Call, path: []string{name}, header: header, body: progress.Reader(f), size: fi.Size()})
	if err != nil {
		return got.Item, err
	}
	defer resp.Body.Close()
	err = json.NewDecoder(resp.Body).Decode(&got)
	return got.Item, err
}

func (a *client) newPackageTrust() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "trust [KEY]",
		Short: "Let the server accept packages of Elastic's signed by an OpenPGP key",
		Long: `Add an armored OpenPGP key, given as a file or as text, to the keys whose packages of Elastic's
the server accepts. Elastic Agents get it from the server, and install what it signs. Without
a key, list the keys that are accepted.`,
		Example: `  muster package trust GPG-KEY-elastic-agent --name Elastic`,
		Args:    cobra.MaximumNArgs(1),
	}
	name := cmd.Flags().String("name", "", "name of the key")
	list := showing(a, cmd, adminapi.ListPublisherKeys, func(w io.Writer, got adminapi.PublisherKeyList) {
		tableOf(w, "ID\tNAME\tADDED\tBY", got.Items, func(k adminapi.PublisherKey) []any { return []any{k.ID, k.Name, atTime(k.AddedAt), k.AddedBy} })
	}).RunE
	add := sending(a, cmd, adminapi.AddPublisherKey, func(_ *cobra.Command, args []string) (adminapi.AddPublisherKeyRequest, error) {
		return adminapi.AddPublisherKeyRequest{PublicKey: textOrFile(args[0]), Name: name}, nil
	}, func(w io.Writer, got adminapi.PublisherKeyItem) {
		fmt.Fprintf(w, "the server accepts packages signed by %s\n", got.Item.ID)
	}).RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return list(cmd, args)
		}
		return add(cmd, args)
	}
	return cmd
}

// textOrFile returns the content of the file that arg names, else arg.
func textOrFile(arg string) string {
	if b, err := os.ReadFile(arg); err == nil {
		return string(b)
	}
	return arg
}

func (a *client) newPackageDistrust() *cobra.Command {
	id := ""
	return running(a, &cobra.Command{
		Use:   "distrust KEY",
		Short: "Let the server refuse packages of Elastic's signed by an OpenPGP key",
		Long: `Remove an OpenPGP key, given by its id, from the keys whose packages of Elastic's the server
accepts. Packages that are published stay: ` + "`muster package withdraw`" + ` removes them.`,
		Example: "  muster package distrust A1B2C3D4E5F60718",
		Args:    oneArg("one publisher key: `muster package trust` lists them"),
	}, func(cmd *cobra.Command, args []string) (adminapi.ActionWord, error) {
		id = strings.ToUpper(args[0])
		return ask(cmd.Context(), a, adminapi.RemovePublisherKey, nil, id)
	}, func(w io.Writer, _ adminapi.ActionWord) {
		fmt.Fprintf(w, "the server refuses packages signed by %s\n", id)
	})
}

func (a *client) newPackageWithdraw() *cobra.Command {
	edit := packagecmd.TargetsEdit{Remote: remote{a}}
	cmd := running(a, &cobra.Command{
		Use:   "withdraw FILE",
		Short: "Withdraw a package from the server",
		Long: `Remove an archive from the server. With --targets-key it is also removed from the signed
targets file, so that no host installs it from anywhere.`,
		Example: `  muster package withdraw muster-agent-1.1.0-linux-amd64.tar.gz --targets-key release/targets-1.key`,
		Args:    oneArg("the name of one published archive"),
		ValidArgsFunction: completing(func(ctx context.Context) ([]string, error) {
			list, err := a.packages(ctx)
			return each(list.Items, func(p adminapi.Package) string { return p.File }), err
		}),
	}, func(cmd *cobra.Command, args []string) (out adminapi.ActionWord, err error) {
		if len(edit.Keys) == 0 {
			a.warnIfSigned(cmd, args[0])
		} else if err := a.unsign(cmd, edit, args[0]); err != nil { // first: should the removal fail, hosts refuse the archive already
			return out, err
		}
		return ask(cmd.Context(), a, adminapi.DeletePackage, nil, args[0])
	}, saying[adminapi.ActionWord]("withdrawn"))
	edit.AddFlags(cmd)
	return cmd
}

// unsign removes an archive from the signed targets file, which may never have named it.
func (a *client) unsign(cmd *cobra.Command, edit packagecmd.TargetsEdit, file string) error {
	prepared, err := edit.Prepare(cmd)
	if err != nil {
		return err
	}
	signed, err := prepared.Run(cmd.Context(), func(e *tuf.Edit) error {
		if err := e.RemoveTarget(file); !errors.Is(err, tuf.ErrUnknownTarget) {
			return err
		}
		return nil
	})
	if err == nil && a.output != "json" {
		signed.Human(cmd.OutOrStdout())
	}
	return err
}

// warnIfSigned warns that the signed targets file still names an archive: hosts may have
// another source for it than the server.
func (a *client) warnIfSigned(cmd *cobra.Command, file string) {
	list, err := a.packages(cmd.Context())
	if err != nil {
		return // the removal that follows reports the same error
	}
	for _, p := range list.Items {
		if p.File == file && deref(p.Signed) {
			fmt.Fprintln(cmd.ErrOrStderr(), "The signed targets file still names it, so hosts install it if they find it elsewhere. Remove it there with --targets-key.")
		}
	}
}
