package dynamolease

import (
	"slices"
	"strconv"
	"strings"

	"maps"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/flightpool/flightpool/lease/fleet"
)

// The attributes of an item: its key, the numbers and texts of the record by
// their names, its owners in one map, and when it may be removed.
const (
	keyName    = "pk"
	ownersName = "o"
	ttlName    = "ttl"
)

type item = map[string]types.AttributeValue

func keyOf(key string) item { return item{keyName: stringValue(key)} }

// numberValue is n as DynamoDB has numbers: decimal text of up to 38 digits.
func numberValue(n int64) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(n, 10)}
}

func stringValue(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }

// intOf is 0 for anything but a number that fits. Items may be written by hand: what
// does not make sense must end no process, and the protocol refuses a record of zeros
// itself.
func intOf(value types.AttributeValue) int64 {
	n, ok := value.(*types.AttributeValueMemberN)
	if !ok {
		return 0
	}
	i, err := strconv.ParseInt(n.Value, 10, 64)
	if err != nil {
		return 0
	}
	return i
}

// decode reads an item as a record. Attributes of other kinds than this package writes
// are left out.
func decode(it item) *fleet.Record {
	r := &fleet.Record{Numbers: map[string]int64{}, Texts: map[string]string{}, Owners: map[string]fleet.Owner{}}
	for name, value := range it {
		switch v := value.(type) {
		case *types.AttributeValueMemberN:
			if name != ttlName {
				r.Numbers[name] = intOf(v)
			}
		case *types.AttributeValueMemberS:
			if name != keyName {
				r.Texts[name] = v.Value
			}
		case *types.AttributeValueMemberM:
			if name == ownersName {
				decodeOwners(v.Value, r.Owners)
			}
		}
	}
	return r
}

// decodeOwners reads the map of owners. Names of one letter keep an entry at about 26
// bytes, of which a write unit has room for 28 with some that are dead.
func decodeOwners(it item, owners map[string]fleet.Owner) {
	for id, value := range it {
		if m, ok := value.(*types.AttributeValueMemberM); ok {
			owners[id] = fleet.Owner{
				Leases: intOf(m.Value["n"]), Seq: intOf(m.Value["q"]), Round: intOf(m.Value["r"]),
				Want: intOf(m.Value["w"]), Kept: intOf(m.Value["k"]),
			}
		}
	}
}

// encodeOwner leaves out what is zero, as it mostly is, for the sake of the item's
// size.
func encodeOwner(o fleet.Owner) types.AttributeValue {
	m := item{"n": numberValue(o.Leases), "q": numberValue(o.Seq), "r": numberValue(o.Round)}
	if o.Want != 0 {
		m["w"] = numberValue(o.Want)
	}
	if o.Kept != 0 {
		m["k"] = numberValue(o.Kept)
	}
	return &types.AttributeValueMemberM{Value: m}
}

// update is a change in DynamoDB's expression language. Names and values stand in it as
// placeholders, so that no name is taken for syntax or for one of the reserved words,
// whatever an operator has called a budget.
type update struct {
	sets, removes, conditions []string
	names                     map[string]string
	values                    item
}

// newUpdate translates a change. Maps are gone through in order, so that the
// same change is always the same text.
//
// A condition on an attribute that is missing is false in DynamoDB, as Change.Holds has
// it. In NoOwner the map of owners must exist, which says that the record does. Add
// needs its number to exist, or the request fails; Change demands a condition that says
// so.
func newUpdate(c *fleet.Change) *update {
	u := &update{names: map[string]string{}, values: item{}}
	if c.Absent {
		u.conditions = append(u.conditions, "attribute_not_exists("+keyName+")")
	}
	u.addNumbers(&u.conditions, c.Equal, func(name string) string { return u.name(name) + " = " })
	u.addNumbers(&u.conditions, c.AtMost, func(name string) string { return u.name(name) + " <= " })
	u.addNumbers(&u.conditions, c.OwnerAt, func(id string) string { return u.owner(id) + ".q = " })
	if c.NoOwner != "" {
		u.conditions = append(u.conditions, "attribute_exists("+ownersName+")", "attribute_not_exists("+u.owner(c.NoOwner)+")")
	}
	u.addNumbers(&u.sets, c.Set, func(name string) string { return u.name(name) + " = " })
	for _, name := range slices.Sorted(maps.Keys(c.Text)) {
		u.sets = append(u.sets, u.name(name)+" = "+u.value(stringValue(c.Text[name])))
	}
	u.addNumbers(&u.sets, c.Add, func(name string) string { return u.name(name) + " = " + u.name(name) + " + " })
	u.addOwners(c)
	if !c.Expires.IsZero() {
		u.sets = append(u.sets, u.name(ttlName)+" = "+u.value(numberValue(c.Expires.Unix())))
	}
	return u
}

// addNumbers adds a clause for each number, which stands behind what left makes of its
// name.
func (u *update) addNumbers(to *[]string, numbers map[string]int64, left func(name string) string) {
	for _, name := range slices.Sorted(maps.Keys(numbers)) {
		*to = append(*to, left(name)+u.value(numberValue(numbers[name])))
	}
}

// addOwners adds what happens to owners. A new item gets the map that their entries
// need. Entries are set one by one, by their paths: the whole map would undo what other
// processes have written since it was read.
func (u *update) addOwners(c *fleet.Change) {
	if c.Absent {
		all := item{}
		for id, o := range c.Put {
			all[id] = encodeOwner(o)
		}
		u.sets = append(u.sets, ownersName+" = "+u.value(&types.AttributeValueMemberM{Value: all}))
	} else {
		for _, id := range slices.Sorted(maps.Keys(c.Put)) {
			u.sets = append(u.sets, u.owner(id)+" = "+u.value(encodeOwner(c.Put[id])))
		}
	}
	for _, id := range c.Remove {
		u.removes = append(u.removes, u.owner(id))
	}
}

// name stands for an attribute's name: some are reserved words.
func (u *update) name(name string) string {
	for placeholder, is := range u.names {
		if is == name {
			return placeholder
		}
	}
	placeholder := "#n" + strconv.Itoa(len(u.names))
	u.names[placeholder] = name
	return placeholder
}

// owner is the path of an owner's entry in the map.
func (u *update) owner(id string) string { return ownersName + "." + u.name(id) }

// value is a new placeholder, which stands for v.
func (u *update) value(v types.AttributeValue) string {
	placeholder := ":v" + strconv.Itoa(len(u.values))
	u.values[placeholder] = v
	return placeholder
}

// input is the request. The answer has the whole item, after the change or, where a
// condition has failed, before it: so no write needs a read to know what is there. A
// stand-in may not give the latter; see Store.Write.
func (u *update) input(table, key string) *dynamodb.UpdateItemInput {
	in := &dynamodb.UpdateItemInput{
		TableName:    &table,
		Key:          keyOf(key),
		ReturnValues: types.ReturnValueAllNew,

		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}
	if len(u.names) > 0 {
		in.ExpressionAttributeNames = u.names
	}
	if len(u.values) > 0 {
		in.ExpressionAttributeValues = u.values
	}
	if len(u.conditions) > 0 {
		in.ConditionExpression = aws.String(strings.Join(u.conditions, " AND "))
	}
	var clauses []string
	if len(u.sets) > 0 {
		clauses = append(clauses, "SET "+strings.Join(u.sets, ", "))
	}
	if len(u.removes) > 0 {
		clauses = append(clauses, "REMOVE "+strings.Join(u.removes, ", "))
	}
	if len(clauses) > 0 {
		in.UpdateExpression = aws.String(strings.Join(clauses, " "))
	}
	return in
}
