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
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/packaging/pkg/build"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/packaging/pkg/trust/tuf"
)

// TargetsEdit holds the flags of subcommands that change the targets file.
type TargetsEdit struct {
	Remote Remote
	// Keys names the files of the targets keys to sign with. Without one the file is
	// written for others to sign.
	Keys []string
	// Root is the folder of signed files, or a root file. The default is the folder of the
	// first key if it has a root, otherwise the current folder.
	Root string
	// Offline reports that the server is not used, only the folder.
	Offline  bool
	password passwordSource
}

// AddFlags adds the flags of every subcommand that changes targets.
func (e *TargetsEdit) AddFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringArrayVar(&e.Keys, "targets-key", nil, "private key file to sign targets with; repeatable")
	f.StringVar(&e.Root, "root", "", "folder of your signed files, or one root file (default: the key's folder)")
	e.password.addFlag(cmd)
	_ = cmd.MarkFlagFilename("targets-key", "key")
	_ = cmd.MarkFlagFilename("root", "json")
}

func (e *TargetsEdit) addOffline(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&e.Offline, "offline", false, "do not use the server: change the file in the folder, to publish it later")
}

// Signed is the result of a change. Scripts depend on its JSON keys.
type Signed struct {
	File    string `json:"file"`
	Version int64  `json:"version"`
	// Changed is false if the file already had the change.
	Changed   bool `json:"changed"`
	Published bool `json:"published"`
	// Signatures names the signatures that the file has and those that it lacks.
	Signatures string `json:"signatures,omitempty"`
	// TrustRoot is the digest for new hosts, set if the file was published.
	TrustRoot string    `json:"trust_root,omitempty"`
	Expires   time.Time `json:"expires"`
}

// Human prints the result and the next step.
func (r Signed) Human(w io.Writer) {
	switch {
	case !r.Changed:
		fmt.Fprintf(w, "targets version %d is up to date\n", r.Version)
	case r.Published:
		fmt.Fprintf(w, "published %s, expires %s\n", filepath.Base(r.File), r.Expires.Format(time.DateOnly))
		fmt.Fprintf(w, "  new hosts trust it with --trust-root %s\n", r.TrustRoot)
	default:
		fmt.Fprintf(w, "%s\n  %s\n", r.File, r.Signatures)
		if strings.Contains(r.Signatures, "still needs") {
			fmt.Fprintf(w, "  next: muster package keys sign %s --key KEY\n", r.File)
		}
		fmt.Fprintf(w, "  then: muster package keys publish %s\n", r.File)
	}
}

// Prepare reads the keys and the folder, so that an error in either is found before
// anything is sent.
func (e *TargetsEdit) Prepare(cmd *cobra.Command) (*PreparedEdit, error) {
	keys, err := readSigners(cmd, e.Keys, e.password)
	if err != nil {
		return nil, err
	}
	s, err := openPublisher(e.dirPath())
	if err != nil {
		return nil, err
	}
	return &PreparedEdit{remote: e.Remote, offline: e.Offline, keys: keys, dir: s}, nil
}

func (e *TargetsEdit) dirPath() string {
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

// PreparedEdit is a TargetsEdit with its keys and folder read.
type PreparedEdit struct {
	remote  Remote
	offline bool
	keys    []tuf.PrivateKey
	dir     *metadataDir
	// unpublished reports that the server lacks the folder's targets file: its publication
	// failed, or was left for later.
	unpublished bool
}

// PublishRoots publishes the folder's roots on a server that has none. Without a root the
// server refuses packages that only the targets file signs for.
func (p *PreparedEdit) PublishRoots(ctx context.Context) error {
	files, err := p.remote.Files(ctx)
	if err != nil || len(files) > 0 {
		return err
	}
	_, err = p.remote.Publish(ctx, p.dir.roots...)
	return err
}

// Run applies one change. A file with enough signatures is published; one without is
// written for the next person to sign. Without a change it makes a new version all the same.
func (p *PreparedEdit) Run(ctx context.Context, change func(*tuf.Edit) error) (Signed, error) {
	if err := p.fetch(ctx); err != nil {
		return Signed{}, err
	}
	edit, err := tuf.EditTargets(p.dir.targets, time.Now().Add(tuf.TargetsLife))
	if err != nil {
		return Signed{}, err
	}
	if change != nil {
		if err := change(edit); err != nil {
			return Signed{}, err
		}
	}
	file, err := edit.Bytes()
	if err != nil {
		return Signed{}, err
	}
	contents, err := tuf.ContentsOf(file)
	if err != nil {
		return Signed{}, err
	}
	if change != nil && p.upToDate(contents) {
		if p.unpublished {
			return p.finish(ctx, p.dir.targets)
		}
		have, err := tuf.Inspect(p.dir.targets)
		return Signed{File: filepath.Join(p.dir.dir, have.FileName), Version: have.Version, Expires: have.Expires}, err
	}
	if file, err = signWith(file, p.dir.root(), p.keys); err != nil {
		return Signed{}, err
	}
	return p.finish(ctx, file)
}

// fetch updates the folder from the server.
func (p *PreparedEdit) fetch(ctx context.Context) error {
	if p.offline {
		return nil
	}
	files, err := p.remote.Files(ctx)
	if err != nil {
		return hinted(err, "--offline, and publish the file when the server can be reached")
	}
	fresh, err := p.dir.update(files)
	if err != nil {
		return err
	}
	p.unpublished = !slices.ContainsFunc(files, func(f []byte) bool { return bytes.Equal(f, p.dir.targets) })
	return p.dir.save(fresh)
}

func (p *PreparedEdit) upToDate(now tuf.Contents) bool {
	if p.dir.targets == nil {
		return false
	}
	before, err := tuf.ContentsOf(p.dir.targets)
	before.Version, before.Expires = now.Version, now.Expires
	return err == nil && reflect.DeepEqual(before, now)
}

func (p *PreparedEdit) finish(ctx context.Context, file []byte) (Signed, error) {
	r, progress, err := signedIn(p.dir.dir, file, p.dir.root())
	if err != nil {
		return Signed{}, err
	}
	// Write before publishing: a published file must not be on the server alone.
	if err := writeSigned(r.File, file); err != nil {
		return Signed{}, err
	}
	if p.offline || !progress.Done() {
		return r, nil
	}
	if r.TrustRoot, err = p.remote.Publish(ctx, append(slices.Clone(p.dir.roots), file)...); err != nil {
		return r, hinted(fmt.Errorf("%s is signed, but not published: %w", r.File, err), "muster package keys publish %s", r.File)
	}
	r.Published = true
	return r, nil
}

// signWith adds the signatures of keys to a file that trusted, or nothing before a first root, says who signs.
func signWith(file, trusted []byte, keys []tuf.PrivateKey) (signed []byte, err error) {
	for _, k := range keys {
		if file, err = tuf.Sign(file, trusted, k); err != nil {
			return nil, err
		}
	}
	return file, nil
}

// signedIn describes a changed file for a folder, in which no other file may have its name.
func signedIn(dir string, file, trusted []byte) (Signed, tuf.Progress, error) {
	progress, err := tuf.Signatures(file, trusted)
	if err != nil {
		return Signed{}, progress, err
	}
	info, err := tuf.Inspect(file)
	if err != nil {
		return Signed{}, progress, err
	}
	r := Signed{File: filepath.Join(dir, info.FileName), Version: info.Version, Expires: info.Expires, Changed: true, Signatures: progress.String()}
	return r, progress, checkOverwrite(r.File, file)
}

// TargetOf returns the entry of an archive in the targets file. It inspects the archive as
// a host does: an archive that hosts refuse must not be signed.
func TargetOf(cmd *cobra.Command, archive string) (tuf.Target, error) {
	c, err := inspect(cmd.Context(), cmd.ErrOrStderr(), archive)
	if err != nil {
		return tuf.Target{}, err
	}
	name, p := filepath.Base(archive), c.Manifest.Package
	if p.OS == "" || p.Arch == "" {
		return tuf.Target{}, fmt.Errorf("%s names no platform: build it with --os and --arch", name)
	}
	if err := checkArchiveName(name, p); err != nil {
		return tuf.Target{}, err
	}
	f, err := os.Open(archive)
	if err != nil {
		return tuf.Target{}, err
	}
	defer f.Close()
	progress := NewProgress(cmd.ErrOrStderr(), "hashing "+name, 0)
	h256, h512 := sha256.New(), sha512.New()
	size, err := io.Copy(io.MultiWriter(h256, h512), progress.Reader(f))
	progress.Done()
	if err != nil {
		return tuf.Target{}, err
	}
	if hex.EncodeToString(h256.Sum(nil)) != c.SHA256 {
		return tuf.Target{}, fmt.Errorf("%s changed while it was read: try again when it is complete", name)
	}
	format := build.TarGz
	if strings.HasSuffix(name, "."+build.Zip) {
		format = build.Zip
	}
	return tuf.Target{
		Component: p.ComponentName(), Version: p.FullVersion(), OS: p.OS, Arch: p.Arch, Format: format,
		Size: size, Unpacked: c.UnpackedSize, SHA512: hex.EncodeToString(h512.Sum(nil)),
	}, nil
}

// checkArchiveName checks that an archive has the name under which agents request it, which
// is the name in the targets file.
func checkArchiveName(name string, p manifest.Package) error {
	if p.OS == "" || p.Arch == "" {
		return nil // for any platform: agents have no fixed name for it
	}
	for _, format := range []string{build.TarGz, build.Zip} {
		if name == p.ArchiveName(format) {
			return nil
		}
	}
	want := p.ArchiveName(build.TarGz)
	return hinted(fmt.Errorf("agents request the package in %s as %s, and the targets file includes the name", name, want),
		"mv %s %s", name, want)
}

// changing makes cmd change the targets file.
func changing(remote Remote, cmd *cobra.Command, change func(cmd *cobra.Command, args []string) (func(*tuf.Edit) error, error)) *cobra.Command {
	e := TargetsEdit{Remote: remote}
	e.AddFlags(cmd)
	e.addOffline(cmd)
	return reporting(cmd, func(cmd *cobra.Command, args []string) (Signed, error) {
		prepared, err := e.Prepare(cmd)
		if err != nil {
			return Signed{}, err
		}
		edit, err := change(cmd, args)
		if err != nil {
			return Signed{}, err
		}
		return prepared.Run(cmd.Context(), edit)
	}, Signed.Human)
}

func newAdd(remote Remote) *cobra.Command {
	var floor string
	cmd := &cobra.Command{
		Use:   "add ARCHIVE…",
		Short: "Add packages to the signed targets file",
		Long: `Add archives to the server's targets file, which hosts enrolled with --trust-root trust.
With enough signatures the file is published; otherwise it is written to the folder for
the next person to sign. The archives themselves are uploaded by push, which with
--targets-key also does what add does.`,
		Example: `  muster package add muster-agent-1.1.0-linux-amd64.tar.gz --targets-key release/targets-1.key
  muster package add muster-agent-1.1.0-*.tar.gz --floor 1.0.0 --targets-key ann.key --root release`,
		Args: someArchives,
	}
	AddFloorFlag(cmd, &floor)
	return changing(remote, cmd, func(cmd *cobra.Command, args []string) (func(*tuf.Edit) error, error) {
		targets, err := TargetsOf(cmd, args)
		if err != nil {
			return nil, err
		}
		return Adding(targets, floor)
	})
}

// TargetsOf is TargetOf for several archives.
func TargetsOf(cmd *cobra.Command, archives []string) ([]tuf.Target, error) {
	var targets []tuf.Target
	for _, archive := range archives {
		t, err := TargetOf(cmd, archive)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", archive, err)
		}
		targets = append(targets, t)
	}
	return targets, nil
}

// AddFloorFlag adds the flag for the floor of Adding.
func AddFloorFlag(cmd *cobra.Command, floor *string) {
	cmd.Flags().StringVar(floor, "floor", "", "also set the floor: hosts refuse upgrades to a lower version (of the component, if the archives are a component's)")
}

// Adding returns a change for Run that adds targets and, unless it is empty, sets the
// floor of agents, or of the component whose targets they are.
func Adding(targets []tuf.Target, floor string) (func(*tuf.Edit) error, error) {
	component := ""
	for i, t := range targets {
		if i == 0 {
			component = t.Component
		}
		if t.Component != component && floor != "" {
			return nil, hinted(errors.New("--floor: the archives are not all of one component, or all of agents, and each has its own floor"),
				"muster package floor VERSION, and muster package floor VERSION --component NAME")
		}
	}
	return func(edit *tuf.Edit) error {
		for _, t := range targets {
			if err := edit.AddTarget(t); err != nil {
				return err
			}
		}
		if floor == "" {
			return nil
		}
		return edit.SetFloor(component, floor)
	}, nil
}

// addComponentFlag adds the flag for the component whose limits a subcommand changes, and has the subcommand
// check it.
func addComponentFlag(cmd *cobra.Command, component *string) {
	cmd.Flags().StringVar(component, "component", "", "name of the component that the version is of (default: the agent)")
	before(cmd, func() error {
		if *component == "" {
			return nil
		}
		if err := manifest.ValidComponentName(*component); err != nil {
			return fmt.Errorf("--component: %w", err)
		}
		return nil
	})
}

// noFloor is the argument that removes the floor.
const noFloor = "none"

func newFloor(remote Remote) *cobra.Command {
	var component string
	cmd := &cobra.Command{
		Use:   "floor VERSION",
		Short: "Set the lowest version that hosts can be upgraded to",
		Long: `Set the floor in the signed targets file: hosts then refuse every upgrade to a lower
version, and a rollback to one that the server orders. "none" removes the floor. Agents
and each component have floors of their own.`,
		Example: `  muster package floor 1.1.0 --targets-key release/targets-1.key
  muster package floor 2.4.0 --component web --targets-key release/targets-1.key
  muster package floor none --targets-key release/targets-1.key`,
		Args: oneVersion(`want one version, or "none"`),
	}
	addComponentFlag(cmd, &component)
	return changing(remote, cmd, func(_ *cobra.Command, args []string) (func(*tuf.Edit) error, error) {
		version := args[0]
		if version == noFloor {
			version = ""
		}
		return func(edit *tuf.Edit) error { return edit.SetFloor(component, version) }, nil
	})
}

func oneVersion(says string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != 1 {
			return errors.New(says)
		}
		return nil
	}
}

const (
	// downgradeTime is how long a downgrade is allowed by default: a rollout through a
	// fleet, including hosts that are switched off for a week.
	downgradeTime = 14 * 24 * time.Hour
	// maxDowngradeTime is the lifetime of a targets file.
	maxDowngradeTime = 90 * 24 * time.Hour
)

func newAllowDowngrade(remote Remote) *cobra.Command {
	var component string
	cmd := &cobra.Command{
		Use:   "allow-downgrade VERSION",
		Short: "Let hosts go back to an older version, for a while",
		Long: `Let hosts go back to an older version, for a while. Hosts refuse versions below the
highest that was committed on them, whatever the server orders, since old versions
have known faults and stay signed. They need no permission to roll back to the
version that they keep (upgrade.keep_previous). The version must not be below the
floor. Then order the upgrade with --force.`,
		Example: `  muster package allow-downgrade 1.0.0 --targets-key release/targets-1.key
  muster package allow-downgrade 1.0.0 --for 48h --targets-key release/targets-1.key
  muster package allow-downgrade 2.3.0 --component web --targets-key release/targets-1.key
  muster package allow-downgrade 1.0.0 --end --targets-key release/targets-1.key`,
		Args: oneVersion("want one version"),
	}
	addComponentFlag(cmd, &component)
	duration := cmd.Flags().Duration("for", downgradeTime, "how long hosts may go back to the version")
	end := cmd.Flags().Bool("end", false, "no longer let hosts go back to the version")
	before(cmd, func() error {
		if *duration <= 0 || *duration > maxDowngradeTime {
			return fmt.Errorf("--for is %s, want a duration up to %s, such as 48h", *duration, maxDowngradeTime)
		}
		return nil
	})
	return changing(remote, cmd, func(_ *cobra.Command, args []string) (func(*tuf.Edit) error, error) {
		until := time.Now().UTC().Truncate(time.Second).Add(*duration)
		if *end {
			until = time.Time{}
		}
		return func(edit *tuf.Edit) error { return edit.AllowDowngrade(component, args[0], until) }, nil
	})
}

func newKeysRenew(remote Remote) *cobra.Command {
	return changing(remote, &cobra.Command{
		Use:   "renew",
		Short: "Sign the targets file again, before it expires",
		Long: `Create the next version of the targets file, with the same contents and valid for another
90 days. It is needed if no package is added for that long, or if a new root removes keys
that signed the current file; then publish both files together. To renew a root, use
rotate.`,
		Example: `  muster package keys renew --targets-key release/targets-1.key
  muster package keys renew --offline --targets-key release/targets-3.key`,
	}, func(*cobra.Command, []string) (func(*tuf.Edit) error, error) { return nil, nil }) //nolint:nilnil // no change is a new version
}

func someArchives(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return nil
	}
	return oneArchive(cmd, args)
}
