package limit

import (
	"bytes"
	"cmp"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/muster-fleet/muster/packaging/terminal"
	"github.com/muster-fleet/muster/server/agentapi"
	"github.com/muster-fleet/muster/server/fleet"
)

// A Message bounds what a host may send in one kind of message. The table below has all of
// them. [Message.Check] applies them to the body before anything of it is decoded, so that a
// document in the store is never larger or deeper than what every reader of it accepts.
type Message struct {
	// Body bounds the body in bytes, as it is sent.
	Body int64
	// Inflated bounds the body when unpacked, if it was compressed.
	Inflated int64

	fields *field
}

// What all messages have in common.
const (
	// MaxDepth is how deep objects and lists may be nested, the body included.
	MaxDepth = fleet.MaxDepth
	// maxName bounds the name of a field, in bytes. The longest known are ids of inputs'
	// streams, of some 300.
	maxName = 1 << 10
	// maxMembers bounds the fields of an object and the elements of a list. A large Elastic
	// Agent reports some hundred components.
	maxMembers = 10_000
	// maxNumber bounds the digits of a number: a float has at most 25.
	maxNumber = 64
)

// Sizes of fields. They are many times what agents send.
const (
	// MaxHostname is the length of the longest name in DNS, in characters.
	MaxHostname = fleet.MaxHostname
	// maxTags bounds the tags of a host.
	maxTags = 100
	// word is for ids, states and versions; the longest id, of a policy's revision, has 60 bytes.
	word = 256
	// text is for messages: a panic with the stacks of a hundred goroutines.
	text = 64 << 10
	// document is for metadata, of which Elastic Agents send 2 KiB.
	document = 256 << 10
	// components is for the components of an agent with their units: a thousand of each.
	components = 4 << 20
)

// The table. A path has the names of a field and of the objects around it, and [] for the
// elements of a list. Fields without a row are bounded by those around them, and by the body.
var (
	EnrollMessage = message(agentapi.MaxEnrollBody, 0, rows{
		"type":                         {bytes: word},
		"id":                           {bytes: 128},
		"enrollment_id":                {bytes: word},
		"replace_token":                {bytes: 1 << 10},
		"shared_id":                    {bytes: 1 << 10},
		"metadata.local":               {bytes: document},
		"metadata.local.host.hostname": {chars: MaxHostname},
		"metadata.local.host.name":     {chars: MaxHostname},
		"metadata.user_provided":       {bytes: document},
		"metadata.tags":                {items: maxTags},
		"metadata.tags[]":              {bytes: 1 << 10},
	})
	CheckinMessage = message(agentapi.MaxCheckinBody, agentapi.MaxCheckinInflated, rows{
		"status":                       {bytes: word},
		"message":                      {bytes: text},
		"ack_token":                    {bytes: word},
		"poll_timeout":                 {bytes: word},
		"agent_policy_id":              {bytes: word},
		"instance.boot_id":             {bytes: word},
		"instance.process_id":          {bytes: word},
		"local_metadata":               {bytes: document},
		"local_metadata.host.hostname": {chars: MaxHostname},
		"local_metadata.host.name":     {chars: MaxHostname},
		"components":                   {bytes: components},
		"components[].id":              {bytes: 1 << 10},
		"components[].message":         {bytes: text},
		"upgrade_details":              {bytes: 2 * text},
		"upgrade_details.action_id":    {bytes: word},
		// A host keeps two or three versions.
		"upgrade.rollbacks":           {items: 32},
		"upgrade.rollbacks[].version": {bytes: maxVersion},
		// An agent and each of its components have two each; twice that.
		"staged_versions":   {items: 4 * (1 + agentapi.MaxComponents)},
		"staged_versions[]": {bytes: maxVersion + 64}, // a component's name before it
	})
	AckMessage = message(agentapi.MaxAcksBody, 0, rows{
		"events[].action_id": {bytes: word},
		"events[].agent_id":  {bytes: word},
		"events[].message":   {bytes: text},
		"events[].error":     {bytes: text},
		// What an input answers: rows of a query, of which a few thousand fit.
		"events[].data": {bytes: 1 << 20},
	})
	BeaconMessage = message(agentapi.MaxBeaconBody, 0, rows{
		"action_id":     {bytes: word},
		"from":          {bytes: maxVersion},
		"to":            {bytes: maxVersion},
		"agent.state":   {bytes: word},
		"agent.version": {bytes: word},
		"reason.code":   {bytes: word},
		"reason.text":   {bytes: beaconText},
		"waiting":       {bytes: beaconText},
	})
	// AuditMessage is the notice of an agent that was uninstalled; the figure is Fleet Server's.
	AuditMessage = message(1<<10, 0, rows{"reason": {bytes: word}})
	// UploadBeginMessage announces a file; Fleet Server stores more of it than Muster reads.
	UploadBeginMessage = message(agentapi.MaxUploadBeginBody, 0, rows{
		"action_id": {bytes: word},
		"agent_id":  {bytes: word},
		"src":       {bytes: word},
	})
	UploadEndMessage = message(agentapi.MaxUploadEndBody, 0, nil)
)

const (
	// maxVersion bounds a version such as 1.2.3-SNAPSHOT+build.
	maxVersion = 128
	// beaconText is for the sentences of a watcher; reasons quote the end of a log.
	beaconText = 8 << 10
)

// rows are the bounds of fields by their path.
type rows map[string]bound

// bound is how large a field may be; 0 means that it has no bound of its own. The length of a
// text is that of its value, of an object or a list that of its JSON.
type bound struct{ bytes, chars, items int }

// field is a node of the paths of a message.
type field struct {
	bound
	members  map[string]*field
	elements *field
}

func message(body, inflated int64, table rows) Message {
	root := &field{}
	for path, b := range table {
		f := root
		for name := range strings.SplitSeq(path, ".") {
			name, list := strings.CutSuffix(name, "[]")
			if f.members[name] == nil {
				if f.members == nil {
					f.members = map[string]*field{}
				}
				f.members[name] = &field{}
			}
			if f = f.members[name]; list {
				if f.elements == nil {
					f.elements = &field{}
				}
				f = f.elements
			}
		}
		f.bound = b
	}
	return Message{Body: body, Inflated: cmp.Or(inflated, body), fields: root}
}

// member returns the node of a member with a name, which may be a path, as in the flat metadata
// of some agents; nil if there is none.
func (f *field) member(name []byte) *field {
	if f == nil || f.members == nil {
		return nil
	}
	if m := f.members[string(name)]; m != nil {
		return m
	}
	first, rest, dotted := bytes.Cut(name, []byte("."))
	if !dotted {
		return nil
	}
	return f.members[string(first)].member(rest)
}

// Check returns an error that names the first field beyond its bound. It returns nil for a body
// that is not JSON, since the decoder has the better error.
func (m Message) Check(body []byte) error {
	// These options make the grammar that of encoding/json.
	c := checker{jsontext.NewDecoder(bytes.NewBuffer(body), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))}
	err := c.value(m.fields, 0)
	if fleet.KindOf(err) != fleet.Invalid {
		return nil
	}
	return err
}

type checker struct{ dec *jsontext.Decoder }

// value reads one value. Its recursion is bounded by MaxDepth.
func (c checker) value(f *field, depth int) error {
	switch kind := c.dec.PeekKind(); kind {
	case '{', '[':
		return c.composite(f, depth, kind == '{')
	default:
		raw, err := c.dec.ReadValue()
		if err != nil {
			return err
		}
		switch kind {
		case '"':
			return c.text(f, raw)
		case '0':
			return c.number(raw)
		}
		return nil
	}
}

func (c checker) composite(f *field, depth int, object bool) error {
	start := c.dec.InputOffset()
	if _, err := c.dec.ReadToken(); err != nil {
		return err
	}
	if depth++; depth > MaxDepth {
		return c.refuse("is nested more than %d deep", MaxDepth)
	}
	end, elements, items := jsontext.Kind(']'), (*field)(nil), maxMembers
	if object {
		end = '}'
	}
	if f != nil {
		elements = f.elements
		if f.items > 0 {
			items = f.items
		}
	}
	for n := 1; c.dec.PeekKind() != end; n++ {
		member := elements
		if object {
			name, err := c.dec.ReadValue()
			if err != nil {
				return err
			}
			if len(name) > maxName+len(`""`) {
				return c.refuse("has a name of %d bytes, at most %d are accepted", len(name)-len(`""`), maxName)
			}
			member = f.member(unquoted(name))
		}
		if n > items {
			noun := "elements"
			if object {
				noun = "fields"
			}
			return c.refuseParent("has more than %d %s", items, noun)
		}
		if err := c.value(member, depth); err != nil {
			return err
		}
		if f != nil && f.bytes > 0 && c.dec.InputOffset()-start > int64(f.bytes) {
			return c.refuseParent("has more than %d bytes", f.bytes)
		}
	}
	_, err := c.dec.ReadToken()
	return err
}

func (c checker) text(f *field, raw []byte) error {
	if f == nil || len(raw)-len(`""`) <= max(f.bytes, f.chars) {
		return nil // the value is never longer than its JSON
	}
	value := unquoted(raw)
	switch {
	case f.bytes > 0 && len(value) > f.bytes:
		return c.refuse("has %d bytes, at most %d are accepted", len(value), f.bytes)
	case f.chars > 0 && utf8.RuneCount(value) > f.chars:
		return c.refuse("has %d characters, at most %d are accepted", utf8.RuneCount(value), f.chars)
	}
	return nil
}

// number refuses what JSON allows and no reader of the store accepts, such as 1e999.
func (c checker) number(raw []byte) error {
	if len(raw) > maxNumber {
		return c.refuse("has a number of %d digits, at most %d are accepted", len(raw), maxNumber)
	}
	if v, err := strconv.ParseFloat(string(raw), 64); err != nil || math.IsInf(v, 0) {
		return c.refuse("is %s, which is too large for a number", raw)
	}
	return nil
}

// unquoted returns the value of a JSON text.
func unquoted(raw []byte) []byte {
	if inner := raw[1 : len(raw)-1]; bytes.IndexByte(inner, '\\') < 0 {
		return inner
	}
	value, _ := jsontext.AppendUnquote(nil, raw) // invalid UTF-8 is replaced
	return value
}

// refuse returns an error about the value or the name that was read last.
func (c checker) refuse(format string, args ...any) error {
	return refusal(c.dec.StackPointer(), format, args...)
}

// refuseParent returns an error about the object or the list that is being read.
func (c checker) refuseParent(format string, args ...any) error {
	return refusal(c.dec.StackPointer().Parent(), format, args...)
}

// maxPath bounds the path in an error: it is for finding the field, and the sender has the rest.
const maxPath = 200

func refusal(at jsontext.Pointer, format string, args ...any) error {
	var path strings.Builder
	path.WriteString("body")
	for name := range at.Tokens() {
		if path.Len()+len(name) > maxPath {
			path.WriteString("…")
			break
		}
		if _, err := strconv.ParseUint(name, 10, 32); err == nil {
			path.WriteString("[" + name + "]")
			continue
		}
		path.WriteString("." + terminal.EscapeLine(name))
	}
	return fleet.FieldError(path.String(), format, args...)
}
