package identity

import (
	"cmp"
	"os"
	"slices"
	"strings"
)

// Rights says what an auth file allows, for people who check one.
type Rights struct {
	policy *policy
}

// ReadRights reads the auth file of settings as Open does, without fetching the keys of issuers.
func ReadRights(set Settings) (*Rights, error) {
	if set.Getenv == nil {
		set.Getenv = os.Getenv
	}
	p, err := readPolicy(&set)
	if err != nil {
		return nil, err
	}
	return &Rights{p}, nil
}

// All reports whether requests without credentials may use a group for every model.
func (r *Rights) All(g Group) bool {
	return r.policy.anonymous != nil && r.policy.anonymous.MayAll(g) == nil
}

// Of lists the roles with a group that somebody has, by name, each with the models that it is limited to: for example "user (models text-*)".
func (r *Rights) Of(g Group) (list []string) {
	used := map[*role]bool{}
	for _, holders := range r.holders() {
		for _, one := range holders {
			used[one] = true
		}
	}
	for one := range used {
		if one.groups.has(g) {
			list = append(list, one.describe(r.policy.anonymous))
		}
	}
	slices.Sort(list)
	return list
}

// holders returns the roles of everybody whom the file names.
func (r *Rights) holders() (list [][]*role) {
	for i := range r.policy.tokens {
		list = append(list, r.policy.tokens[i].who.roles)
	}
	for i := range r.policy.certificates {
		list = append(list, r.policy.certificates[i].who.roles)
	}
	for _, i := range r.policy.issuers {
		list = append(list, i.roles)
		for _, roles := range i.mapped {
			list = append(list, roles)
		}
	}
	if r.policy.anonymous != nil {
		list = append(list, r.policy.anonymous.roles)
	}
	return list
}

// describe returns the role's name and its limits. anonymous is who sends requests without credentials, nil if they are refused.
func (r *role) describe(anonymous *Identity) string {
	var limits []string
	if len(r.models) > 0 {
		limits = append(limits, "models "+strings.Join(r.models, ", "))
	}
	if len(r.spaces) > 0 {
		limits = append(limits, "namespaces "+strings.Join(r.spaces, ", "))
	}
	if anonymous != nil && slices.Contains(anonymous.roles, r) {
		limits = append(limits, "without credentials")
	}
	return cmp.Or(strings.TrimSuffix(r.name+" ("+strings.Join(limits, "; ")+")", " ()"), r.name)
}
