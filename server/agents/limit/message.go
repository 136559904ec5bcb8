package limit

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/muster-fleet/muster/packaging/host/terminal"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// A Message bounds what a host may send in one kind of message. The table below has all of
// them. [Message.Read] and [Message.Check] apply them before anything is built of the body, so
// that a document in the store is never larger or deeper than what every reader of it accepts.
type Message struct {
	// Name is what the message is called, such as checkin.
	Name string
	// Body bounds the body in bytes, as it is sent, and when unpacked if it was compressed.
	Body int64
	// Values bounds the values in it: texts, numbers, objects, lists and the rest. Decoded, the
	// smallest of them takes as much memory as fifty bytes of text.
	Values int

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
	// text is for messages, of which a person reads the first lines. Longer ones are cut: a
	// refusal would cut the host off because of a long error.
	text = 8 << 10
	// document is for metadata, of which Elastic Agents send 2 KiB.
	document = 32 << 10
	// components is for the components of an agent with their units. An Elastic Agent with a
	// hundred components of five units has 200 KiB.
	components = 512 << 10
)

// The table. A path has the names of a field and of the objects around it, and [] for the
// elements of a list. Fields without a row are bounded by those around them, and by the body.
var (
	EnrollMessage = message("enroll", agentapi.MaxEnrollBody, 10_000, rows{
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
		"metadata.tags[]":              {bytes: word},
	})
	// A hundred components of ten units, which have some thirty values each, are 30,000 values.
	CheckinMessage = message("checkin", agentapi.MaxCheckinBody, 50_000, rows{
		"status":                       {bytes: word},
		"message":                      {bytes: text, cut: true},
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
		"components[].message":         {bytes: text, cut: true},
		"components[].units[].message": {bytes: text, cut: true},
		"components[].upgrade_details.metadata.error_msg":       {bytes: text, cut: true},
		"components[].upgrade_details.metadata.retry_error_msg": {bytes: text, cut: true},
		"components[].upgrade_details.metadata.reason":          {bytes: text, cut: true},
		// Why a kept version of a component cannot be put back.
		"components[].rollback_problems[].reason":  {bytes: text, cut: true},
		"upgrade_details":                          {bytes: 4 * text},
		"upgrade_details.action_id":                {bytes: word},
		"upgrade_details.target_version":           {bytes: maxVersion},
		"upgrade_details.metadata.error_msg":       {bytes: text, cut: true},
		"upgrade_details.metadata.retry_error_msg": {bytes: text, cut: true},
		"upgrade_details.metadata.reason":          {bytes: text, cut: true},
		// A host keeps two or three versions.
		"upgrade.rollbacks":           {items: 32},
		"upgrade.rollbacks[].version": {bytes: maxVersion},
		// Agents report so many, with URLs of the length that servers and proxies read.
		"upgrade.failed_sources":           {items: agentapi.MaxFailedSources},
		"upgrade.failed_sources[].package": {bytes: 1 << 10, cut: true},
		"upgrade.failed_sources[].reason":  {bytes: 1 << 10, cut: true},
		// An agent and each of its components have two each; twice that.
		"staged_versions":   {items: 4 * (1 + agentapi.MaxComponents)},
		"staged_versions[]": {bytes: maxVersion + 64}, // a component's name before it
	})
	AckMessage = message("acks", agentapi.MaxAcksBody, 50_000, rows{
		// Ten answers of the server have so many actions. Each event is looked up in the store.
		"events":             {items: 1_000},
		"events[].action_id": {bytes: word},
		"events[].agent_id":  {bytes: word},
		"events[].message":   {bytes: text, cut: true},
		"events[].error":     {bytes: text, cut: true},
		// What an input answers: counts, or rows of a query, of which some hundred fit.
		"events[].data": {bytes: 256 << 10},
	})
	BeaconMessage = message("beacon", agentapi.MaxBeaconBody, 1_000, rows{
		"action_id":     {bytes: word},
		"from":          {bytes: maxVersion},
		"to":            {bytes: maxVersion},
		"agent.state":   {bytes: word},
		"agent.version": {bytes: word},
		"reason.code":   {bytes: word},
		"reason.text":   {bytes: text, cut: true}, // the end of a log
		"waiting":       {bytes: text, cut: true},
	})
	// AuditMessage is the notice of an agent that was uninstalled; the figure is Fleet Server's.
	AuditMessage = message("audit", 1<<10, 100, rows{"reason": {bytes: word}})
	// UploadBeginMessage announces a file. Fleet Server stores more of it than Muster reads.
	UploadBeginMessage = message("upload-begin", agentapi.MaxUploadBeginBody, 1_000, rows{
		"action_id":      {bytes: word},
		"agent_id":       {bytes: word},
		"src":            {bytes: word},
		"file.name":      {bytes: 1 << 10},
		"file.ext":       {bytes: word},
		"file.mime_type": {bytes: word},
	})
	UploadEndMessage = message("upload-end", agentapi.MaxUploadEndBody, 100, rows{"transithash.sha256": {bytes: word}})
)

// maxVersion bounds a version such as 1.2.3-SNAPSHOT+build.
const maxVersion = 128

// Messages are all messages of the table.
var Messages []Message

// rows are the bounds of fields by their path.
type rows map[string]bound

// bound is how large a field may be; 0 means that it has no bound of its own. The length of a
// text is that of its value, of an object or a list that of its JSON.
type bound struct {
	bytes, chars, items int
	// cut: a text that has more bytes is cut, and not refused.
	cut bool
}

// field is a node of the paths of a message.
type field struct {
	bound
	members  map[string]*field
	elements *field
}

func message(name string, body int64, values int, table rows) Message {
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
	m := Message{Name: name, Body: body, Values: values, fields: root}
	Messages = append(Messages, m)
	return m
}

// Field is a row of the table. Bounds of 0 are none.
type Field struct {
	Path         string
	Bytes, Items int
	// Cut: a text that is too long is cut, and not refused.
	Cut bool
}

// Fields returns the rows of the table for the message.
func (m Message) Fields() []Field { return m.fields.rows("", nil) }

func (f *field) rows(path string, rows []Field) []Field {
	if f.bound != (bound{}) {
		rows = append(rows, Field{path, max(f.bytes, f.chars), f.items, f.cut})
	}
	for _, name := range slices.Sorted(maps.Keys(f.members)) {
		rows = f.members[name].rows(strings.TrimPrefix(path+"."+name, "."), rows)
	}
	if f.elements != nil {
		rows = f.elements.rows(path+"[]", rows)
	}
	return rows
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

// Check returns the body with its long texts cut, and what it costs to decode it. An error names
// the first field beyond its bound. A body that is not JSON has none, since the decoder has the
// better error.
func (m Message) Check(body []byte) ([]byte, int64, error) {
	return m.check(bytes.NewBuffer(body), func() ([]byte, error) { return body, nil })
}

// Read is Check for a body that is being unpacked: no more of it is than up to the first field
// beyond its bound. Errors of r come before those of a body that is not JSON.
func (m Message) Read(r io.Reader) ([]byte, int64, error) {
	in := &inflating{r: r, left: m.Body}
	return m.check(in, func() ([]byte, error) {
		_, err := io.Copy(io.Discard, in)
		if errors.Is(err, errTooLong) {
			err = fleet.FieldError("body", "has more than %d bytes when unpacked", m.Body)
		}
		return in.body, err
	})
}

// check reads r, of which rest then returns the whole.
func (m Message) check(r io.Reader, rest func() ([]byte, error)) ([]byte, int64, error) {
	// These options make the grammar that of encoding/json.
	c := checker{dec: jsontext.NewDecoder(r, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)), most: m.Values}
	if err := c.value(m.fields, 0); fleet.KindOf(err) == fleet.Invalid {
		return nil, 0, err
	}
	body, err := rest()
	if err != nil {
		return nil, 0, err
	}
	body = c.applied(body)
	return body, cost(len(body), c.values), nil
}

// inflating keeps what is read through it, at most left bytes.
type inflating struct {
	r    io.Reader
	left int64
	body []byte
	err  error
}

var errTooLong = errors.New("too long")

func (in *inflating) Read(p []byte) (int, error) {
	if in.err != nil {
		return 0, in.err
	}
	n, err := in.r.Read(p[:min(int64(len(p)), in.left+1)])
	if in.left -= int64(n); in.left < 0 {
		n, err = 0, errTooLong
	}
	in.body, in.err = append(in.body, p[:n]...), err
	return n, err
}

// checker reads a body.
type checker struct {
	dec          *jsontext.Decoder
	values, most int
	cuts         []cut
	saved        int64 // bytes of the body, by cuts
}

// cut is a text of the body that is replaced by a shorter one.
type cut struct {
	from, to int64
	by       []byte
}

// applied returns the body with its cuts.
func (c *checker) applied(body []byte) []byte {
	if len(c.cuts) == 0 {
		return body
	}
	out, at := make([]byte, 0, int64(len(body))-c.saved), int64(0)
	for _, cut := range c.cuts {
		out, at = append(append(out, body[at:cut.from]...), cut.by...), cut.to
	}
	return append(out, body[at:]...)
}

// value reads one value. Its recursion is bounded by MaxDepth.
func (c *checker) value(f *field, depth int) error {
	kind := c.dec.PeekKind()
	if c.values++; c.values > c.most {
		return fleet.FieldError("body", "has more than %d values", c.most)
	}
	switch kind {
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

func (c *checker) composite(f *field, depth int, object bool) error {
	start := c.length()
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
		if f != nil && f.bytes > 0 && c.length()-start > int64(f.bytes) {
			return c.refuseParent("has more than %d bytes", f.bytes)
		}
	}
	_, err := c.dec.ReadToken()
	return err
}

// length is that of what was read, without what was cut.
func (c *checker) length() int64 { return c.dec.InputOffset() - c.saved }

func (c *checker) text(f *field, raw []byte) error {
	if f == nil || len(raw)-len(`""`) <= max(f.bytes, f.chars) {
		return nil // the value is never longer than its JSON
	}
	value := unquoted(raw)
	switch {
	case f.cut && len(value) > f.bytes:
		c.cut(value, f.bytes, len(raw))
	case f.bytes > 0 && len(value) > f.bytes:
		return c.refuse("has %d bytes, at most %d are accepted", len(value), f.bytes)
	case f.chars > 0 && utf8.RuneCount(value) > f.chars:
		return c.refuse("has %d characters, at most %d are accepted", utf8.RuneCount(value), f.chars)
	}
	return nil
}

// cut replaces the text that was read last, of which raw bytes are in the body.
func (c *checker) cut(value []byte, most, raw int) {
	by, _ := jsontext.AppendQuote(nil, fleet.CutText(value, most)) // invalid UTF-8 is replaced
	at := c.dec.InputOffset()
	c.cuts = append(c.cuts, cut{at - int64(raw), at, by})
	c.saved += int64(raw - len(by))
}

// number refuses what JSON allows and no reader of the store accepts, such as 1e999.
func (c *checker) number(raw []byte) error {
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
func (c *checker) refuse(format string, args ...any) error {
	return refusal(c.dec.StackPointer(), format, args...)
}

// refuseParent returns an error about the object or the list that is being read.
func (c *checker) refuseParent(format string, args ...any) error {
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
