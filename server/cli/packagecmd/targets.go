package packagecmd

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/packaging/build"
	"github.com/muster-fleet/muster/packaging/trust/tuf"
)

// TargetsEdit changes the targets file: on top of what the server has, believed
// by the root at hand, signed with the keys at hand.
type TargetsEdit struct {
	Remote Remote
	// Keys are files of targets keys, none for a draft that others sign.
	Keys []string
	// Root is the folder of signed files, or a root file; empty: the first key's
	// folder, or else the one worked in.
	Root string
	// Offline leaves the server alone: the folder is all there is.
	Offline  bool
	password passwordSource
}

// AddFlags adds the flags that every command which changes targets has.
func (e *TargetsEdit) AddFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringArrayVar(&e.Keys, "targets-key", nil, "private key file that signs targets; repeat to sign with more of them")
	f.StringVar(&e.Root, "root", "", "folder of your signed files, or one root file (default: the key's folder)")
	e.password.addFlag(cmd)
	_ = cmd.MarkFlagFilename("targets-key", "key")
	_ = cmd.MarkFlagFilename("root", "json")
}

func (e *TargetsEdit) addOffline(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&e.Offline, "offline", false, "ask no server: change what is in the folder, and publish the file later")
}

// Signed is what became of a change. Its JSON keys stay as they are.
type Signed struct {
	File    string `json:"file"`
	Version int64  `json:"version"`
	// Changed is false when targets said all of it already.
	Changed   bool `json:"changed"`
	Published bool `json:"published"`
	// Signatures says who has signed and who is missing.
	Signatures string `json:"signatures,omitempty"`
	// TrustRoot is what new hosts pin, when it was published.
	TrustRoot string    `json:"trust_root,omitempty"`
	Expires   time.Time `json:"expires"`
}

// Human writes it for people, with the next step.
func (r Signed) Human(w io.Writer) {
	switch {
	case !r.Changed:
		fmt.Fprintf(w, "targets version %d says so already\n", r.Version)
	case r.Published:
		fmt.Fprintf(w, "published %s, good until %s\n", filepath.Base(r.File), r.Expires.Format(time.DateOnly))
		fmt.Fprintf(w, "  new hosts trust it with --trust-root %s\n", r.TrustRoot)
	default:
		fmt.Fprintf(w, "%s\n  %s\n", r.File, r.Signatures)
		if strings.Contains(r.Signatures, "still needs") {
			fmt.Fprintf(w, "  next: muster package keys sign %s --key KEY\n", r.File)
		}
		fmt.Fprintf(w, "  then: muster package keys publish %s\n", r.File)
	}
}

// Prepare checks all that can be wrong before anything is sent: the keys open,
// and the root is there. Run calls it too.
func (e *TargetsEdit) Prepare(cmd *cobra.Command) (*PreparedEdit, error) {
	keys, err := readSigners(cmd, e.Keys, e.password)
	if err != nil {
		return nil, err
	}
	s, err := openShelf(e.shelfPath())
	if err != nil {
		return nil, err
	}
	if _, err := s.mustRoot(); err != nil {
		return nil, err
	}
	return &PreparedEdit{remote: e.Remote, offline: e.Offline, keys: keys, shelf: s}, nil
}

func (e *TargetsEdit) shelfPath() string {
	if e.Root != "" {
		return e.Root
	}
	if len(e.Keys) > 0 {
		dir := filepath.Dir(e.Keys[0])
		if found, err := filepath.Glob(filepath.Join(dir, "[1-9]*.root.json")); err == nil && len(found) > 0 {
			return dir
		}
	}
	return "."
}

// PreparedEdit is a TargetsEdit whose keys are open.
type PreparedEdit struct {
	remote  Remote
	offline bool
	keys    []tuf.PrivateKey
	shelf   *shelf
	// behind says that the server has not what the folder has: a publication
	// failed, or was left for later.
	behind bool
}

// PublishRoots gives a server that has no root yet those at hand: without one it
// takes in no package whose signature is the targets file's.
func (p *PreparedEdit) PublishRoots(ctx context.Context) error {
	files, err := p.remote.Files(ctx)
	if err != nil || len(files) > 0 {
		return err
	}
	_, err = p.remote.Publish(ctx, p.shelf.roots...)
	return err
}

// Run makes one change. With enough signatures it is published, else written for
// the next to sign.
func (p *PreparedEdit) Run(ctx context.Context, change func(*tuf.Edit) error) (Signed, error) {
	return p.run(ctx, false, change)
}

// run: anew makes a new version also when nothing changes.
func (p *PreparedEdit) run(ctx context.Context, anew bool, change func(*tuf.Edit) error) (Signed, error) {
	if err := p.catchUp(ctx); err != nil {
		return Signed{}, err
	}
	edit, err := tuf.EditTargets(p.shelf.targets, time.Now().Add(tuf.TargetsLife))
	if err != nil {
		return Signed{}, err
	}
	if err := change(edit); err != nil {
		return Signed{}, err
	}
	file, err := edit.Bytes()
	if err != nil {
		return Signed{}, err
	}
	said, err := tuf.ContentsOf(file)
	if err != nil {
		return Signed{}, err
	}
	if !anew && p.saysAlready(said) {
		if p.behind {
			return p.finish(ctx, p.shelf.targets)
		}
		have, err := tuf.Inspect(p.shelf.targets)
		return Signed{File: filepath.Join(p.shelf.dir, have.FileName), Version: have.Version, Expires: have.Expires}, err
	}
	for _, k := range p.keys {
		if file, err = tuf.Sign(file, p.shelf.root(), k); err != nil {
			return Signed{}, err
		}
	}
	return p.finish(ctx, file)
}

// catchUp learns what the server has.
func (p *PreparedEdit) catchUp(ctx context.Context) error {
	if p.offline {
		return nil
	}
	files, err := p.remote.Files(ctx)
	if err != nil {
		return hinted(err, "again with --offline, and publish the file when the server can be reached")
	}
	fresh, err := p.shelf.follow(files)
	if err != nil {
		return err
	}
	p.behind = !slices.ContainsFunc(files, func(f []byte) bool { return bytes.Equal(f, p.shelf.targets) })
	return p.shelf.keep(fresh)
}

func (p *PreparedEdit) saysAlready(now tuf.Contents) bool {
	if p.shelf.targets == nil {
		return false
	}
	before, err := tuf.ContentsOf(p.shelf.targets)
	return err == nil && before.Floor == now.Floor && slices.Equal(before.Targets, now.Targets)
}

func (p *PreparedEdit) finish(ctx context.Context, file []byte) (Signed, error) {
	info, err := tuf.Inspect(file)
	if err != nil {
		return Signed{}, err
	}
	progress, err := tuf.Signatures(file, p.shelf.root())
	if err != nil {
		return Signed{}, err
	}
	r := Signed{
		File: filepath.Join(p.shelf.dir, info.FileName), Version: info.Version, Expires: info.Expires, Changed: true, Signatures: progress.String(),
	}
	if err := draftAt(r.File, file); err != nil {
		return Signed{}, err
	}
	// Written first: a file that was published must not be on the server alone.
	if err := writeSigned(r.File, file); err != nil {
		return Signed{}, err
	}
	if p.offline || !progress.Done() {
		return r, nil
	}
	if r.TrustRoot, err = p.remote.Publish(ctx, append(slices.Clone(p.shelf.roots), file)...); err != nil {
		return r, hinted(fmt.Errorf("%s is signed, but not published: %w", r.File, err), "muster package keys publish %s", r.File)
	}
	r.Published = true
	return r, nil
}

// TargetOf reads an archive as publishers sign it. It is inspected as a host would:
// one that hosts refuse is not signed.
func TargetOf(cmd *cobra.Command, archive string) (tuf.Target, error) {
	c, err := inspect(cmd.Context(), cmd.ErrOrStderr(), archive)
	if err != nil {
		return tuf.Target{}, err
	}
	name, p := filepath.Base(archive), c.Manifest.Package
	if p.OS == "" || p.Arch == "" {
		return tuf.Target{}, fmt.Errorf("%s does not say which platform it is for: build it with --os and --arch", name)
	}
	if err := checkArchiveName(name, p); err != nil {
		return tuf.Target{}, err
	}
	f, err := os.Open(archive)
	if err != nil {
		return tuf.Target{}, err
	}
	defer f.Close()
	progress := newProgress(cmd.ErrOrStderr(), "hashing "+name)
	h256, h512 := sha256.New(), sha512.New()
	size, err := io.Copy(io.MultiWriter(h256, h512), progress.reader(f))
	progress.done()
	if err != nil {
		return tuf.Target{}, err
	}
	if hex.EncodeToString(h256.Sum(nil)) != c.SHA256 {
		return tuf.Target{}, fmt.Errorf("%s changed while it was read: try again when nobody writes it", name)
	}
	format := build.TarGz
	if strings.HasSuffix(name, "."+build.Zip) {
		format = build.Zip
	}
	return tuf.Target{
		Version: p.FullVersion(), OS: p.OS, Arch: p.Arch, Format: format,
		Size: size, Unpacked: c.UnpackedSize, SHA512: hex.EncodeToString(h512.Sum(nil)),
	}, nil
}

func newAdd(remote Remote) *cobra.Command {
	e := TargetsEdit{Remote: remote}
	var floor, output string
	cmd := &cobra.Command{
		Use:   "add ARCHIVE…",
		Short: "Name packages in the signed targets file",
		Long: `Adds archives to the targets file that hosts enrolled with --trust-root believe,
on top of what the server has. With the signatures of enough keys it is published;
else it is written for the next to sign. The archives themselves are uploaded by
push, which does this too when it is given a key.`,
		Example: `  muster package add muster-agent-1.1.0-linux-amd64.tar.gz --targets-key release/targets-1.key
  muster package add muster-agent-1.1.0-*.tar.gz --floor 1.0.0 --targets-key ann.key --root release`,
		Args:         someArchives,
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			prepared, err := e.Prepare(cmd)
			if err != nil {
				return err
			}
			var targets []tuf.Target
			for _, archive := range args {
				t, err := TargetOf(cmd, archive)
				if err != nil {
					return err
				}
				targets = append(targets, t)
			}
			r, err := prepared.Run(cmd.Context(), Adding(targets, floor))
			return show(cmd, output, r, r.Human, err)
		},
	}
	cmd.Flags().StringVar(&floor, "floor", "", "also set the lowest version a host may be moved to")
	e.AddFlags(cmd)
	e.addOffline(cmd)
	addOutputFlag(cmd, &output)
	return cmd
}

// Adding is the change that names archives, and sets the floor unless it is empty.
func Adding(targets []tuf.Target, floor string) func(*tuf.Edit) error {
	return func(edit *tuf.Edit) error {
		for _, t := range targets {
			if err := edit.AddTarget(t); err != nil {
				return err
			}
		}
		if floor == "" {
			return nil
		}
		return edit.SetFloor(floor)
	}
}

// noFloor is what takes the floor away.
const noFloor = "none"

func newFloor(remote Remote) *cobra.Command {
	e := TargetsEdit{Remote: remote}
	var output string
	cmd := &cobra.Command{
		Use:   "floor VERSION",
		Short: "Sign the lowest version a host may be moved to",
		Long: `Sets the floor in the signed targets file: hosts then refuse an upgrade to a lower
version, whoever orders it, except back to a version they kept. "none" takes it
away.`,
		Example: `  muster package floor 1.1.0 --targets-key release/targets-1.key
  muster package floor none --targets-key release/targets-1.key`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New(`want one version, or "none"`)
			}
			return nil
		},
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			version := args[0]
			if version == noFloor {
				version = ""
			}
			prepared, err := e.Prepare(cmd)
			if err != nil {
				return err
			}
			r, err := prepared.Run(cmd.Context(), func(edit *tuf.Edit) error { return edit.SetFloor(version) })
			return show(cmd, output, r, r.Human, err)
		},
	}
	e.AddFlags(cmd)
	e.addOffline(cmd)
	addOutputFlag(cmd, &output)
	return cmd
}

func newKeysRenew(remote Remote) *cobra.Command {
	e := TargetsEdit{Remote: remote}
	var output string
	cmd := &cobra.Command{
		Use:   "renew",
		Short: "Sign the targets file anew, before it expires",
		Long: `Makes the next version of the targets file, which says the same and is good for
another 90 days. It is needed only where no package was added for as long, or when
a new root takes away keys that signed the present one; then publish both together.
A root is renewed by rotate, without changes if there are none.`,
		Example: `  muster package keys renew --targets-key release/targets-1.key
  muster package keys renew --offline --targets-key release/targets-3.key`,
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			prepared, err := e.Prepare(cmd)
			if err != nil {
				return err
			}
			r, err := prepared.run(cmd.Context(), true, func(*tuf.Edit) error { return nil })
			return show(cmd, output, r, r.Human, err)
		},
	}
	e.AddFlags(cmd)
	e.addOffline(cmd)
	addOutputFlag(cmd, &output)
	return cmd
}

func someArchives(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return nil
	}
	return oneArchive(cmd, args)
}

// show prints a result as -o says; nothing after an error.
func show(cmd *cobra.Command, output string, v any, human func(io.Writer), err error) error {
	if err != nil {
		return err
	}
	if output == outputJSON {
		return writeJSON(cmd.OutOrStdout(), v)
	}
	human(cmd.OutOrStdout())
	return nil
}
