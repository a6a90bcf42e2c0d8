//! What the holder of the CA does: tokens, new members, renewals, removals, backups.

use std::sync::Arc;

use crate::holder::Holder;
use crate::join::{Admission, JOIN_VERSION, JoinRefusal, JoinRequest};
use crate::name::{NodeName, PeerIdentity};
use crate::removal::Removal;
use crate::roster::{MEMBERS_MAX, Member, ROSTER_LENGTH_MAX, Roster, RosterError};
use crate::state::{RenewRequest, State, StateError};
use crate::tls::issue::{CLOCK_SKEW, Issued};
use crate::tls::{self, authority_pin};
use crate::token::Admitted;
use whim_secret::Concealed;
use whim_secret::Token;

impl State {
    fn holder_mut(&mut self) -> Result<&mut Holder, StateError> {
        let name = self.roster().holder.clone();
        self.holder.as_mut().ok_or(StateError::NotHolder(name))
    }

    fn holder_ref(&self) -> Result<&Holder, StateError> {
        self.holder
            .as_ref()
            .ok_or_else(|| StateError::NotHolder(self.roster().holder.clone()))
    }

    /// Makes a token that admits one node within 15 minutes.
    ///
    /// # Errors
    /// If this node does not hold the CA, there are too many tokens, or the records cannot be written.
    pub fn token(&mut self, now: u64) -> Result<Token, StateError> {
        let holder = self.holder_mut()?;
        let pin = authority_pin(holder.authority.certificate_pem())?;
        let mut book = holder.book.clone();
        let token = book.tokens.issue(pin, now)?;
        holder.save_book(book)?;
        Ok(token)
    }

    /// The nodes that tokens have admitted within the last day; only the holder of the CA knows them.
    #[must_use]
    pub fn admitted(&self, now: u64) -> Vec<Admitted> {
        let book = self.holder.as_ref().map(|holder| &holder.book.tokens);
        book.map(|tokens| tokens.lately(now)).unwrap_or_default()
    }

    /// Configuration to answer new nodes, under [`crate::name::SERVER_NAME_JOIN`]. Its certificate is valid for
    /// two days, so make a configuration for each connection.
    ///
    /// # Errors
    /// This node does not hold the CA.
    pub fn join_server_config(&self, now: u64) -> Result<Arc<rustls::ServerConfig>, StateError> {
        let authority = &self.holder_ref()?.authority;
        let (leaf, key) = authority.issue_join(now)?;
        Ok(tls::join_server_config(
            &leaf.pem,
            &key,
            authority.certificate_pem(),
        )?)
    }

    /// Admits a node. The token is marked as spent on disk before anything is signed, so a crash in between
    /// costs a token, but never adds a second member. Push the new [`State::signed_roster`] afterwards. `from`
    /// is the address that the request came from, for the records.
    ///
    /// # Errors
    /// Why not, in words for the user at the new node.
    pub fn admit(
        &mut self,
        request: &JoinRequest,
        from: &str,
        now: u64,
    ) -> Result<Admission, JoinRefusal> {
        if request.version != JOIN_VERSION {
            return Err(JoinRefusal::Version {
                ours: JOIN_VERSION,
                theirs: request.version,
            });
        }
        if request.clock.abs_diff(now) > CLOCK_SKEW {
            return Err(JoinRefusal::Clock { theirs: now });
        }
        let member = Member {
            name: request.node.clone(),
            addresses: request.addresses.clone(),
            class: request.class.clone(),
            added: now,
        };
        let internal = |e: &dyn std::fmt::Display| JoinRefusal::Internal(e.to_string());
        member.check().map_err(|e| internal(&e))?;
        let point = request.key.point(&request.node).map_err(|e| internal(&e))?;
        let mut roster = self.roster().clone();
        let holder = self.holder_mut().map_err(|e| internal(&e))?;
        let mut book = holder.book.clone();
        book.tokens
            .check(&request.token_id, &request.token_secret, now)
            .map_err(JoinRefusal::Token)?;
        // Only the holder of a valid token learns which names are taken, and keeps the token then.
        if roster.member(&request.node).is_some() {
            return Err(JoinRefusal::NameTaken);
        }
        if roster.members.len() >= MEMBERS_MAX {
            return Err(JoinRefusal::Full);
        }
        book.tokens
            .redeem(&request.token_id, &request.token_secret, now)
            .map_err(JoinRefusal::Token)?;
        holder.save_book(book.clone()).map_err(|e| internal(&e))?;
        let certificate = holder
            .authority
            .issue_node(&request.node, &point, now)
            .map_err(|e| internal(&e))?;
        book.record(&request.node, &certificate, now);
        book.tokens.admitted(&request.token_id, &request.node, from);
        holder.save_book(book).map_err(|e| internal(&e))?;
        let ca_pem = holder.authority.certificate_pem().to_owned();
        roster.members.push(member);
        self.publish(roster, now).map_err(|e| internal(&e))?;
        Ok(Admission {
            ca_pem,
            certificate,
            roster: self.signed_roster().clone(),
            now,
        })
    }

    /// Signs and adopts a changed list, unless it is too long for others to use.
    pub(crate) fn publish(&mut self, mut roster: Roster, now: u64) -> Result<(), StateError> {
        roster.advance(now);
        let signed = roster.sign(&self.holder_ref()?.authority)?;
        if signed.json.len() > ROSTER_LENGTH_MAX {
            return Err(RosterError::TooLong.into());
        }
        self.adopt(roster, signed)
    }

    /// Removes a member and revokes its certificates; local connections see it at once, others once
    /// the new list is pushed.
    ///
    /// # Errors
    /// If this node is not the holder, there is no such member, or it is the holder itself.
    pub fn remove(&mut self, node: &NodeName, now: u64) -> Result<(), StateError> {
        self.holder_ref()?;
        if *node == self.roster().holder {
            return Err(StateError::RemoveHolder(node.clone()));
        }
        let mut roster = self.roster().clone();
        if roster.member(node).is_none() {
            return Err(StateError::UnknownMember(node.clone()));
        }
        let holder = self.holder_mut()?;
        let mut book = holder.book.clone();
        let serials = book.serials(node);
        roster.revoked.extend(book.strike(node));
        roster.members.retain(|m| m.name != *node);
        // The list comes first: even if the records cannot be written afterwards, the node is out.
        self.publish(roster, now)?;
        self.holder_mut()?.save_book(book)?;
        let removal = Removal {
            cluster: self.cluster().clone(),
            node: node.clone(),
            serials,
            at: now,
            version: self.roster().version,
        };
        let signed = removal.sign(&self.holder_ref()?.authority)?;
        self.accept_removals(&[signed])?;
        Ok(())
    }

    /// Changes what is known of a member: its addresses and its class. Returns true if something changed: then
    /// push the list.
    ///
    /// # Errors
    /// Not the holder, no such member, or beyond a limit.
    pub fn update_member(
        &mut self,
        node: &NodeName,
        addresses: &[String],
        class: &str,
        now: u64,
    ) -> Result<bool, StateError> {
        self.holder_ref()?;
        let mut roster = self.roster().clone();
        let member = roster
            .members
            .iter_mut()
            .find(|m| m.name == *node)
            .ok_or_else(|| StateError::UnknownMember(node.clone()))?;
        if member.addresses == addresses && member.class == class {
            return Ok(false);
        }
        member.addresses = addresses.to_vec();
        class.clone_into(&mut member.class);
        member.check()?;
        self.publish(roster, now)?;
        Ok(true)
    }

    /// Signs a new certificate for a member, for the key in its request. `peer` is the identity that the
    /// connection has proved.
    ///
    /// # Errors
    /// If this node is not the holder, the peer is not a member, or it does not prove that it has the key.
    pub fn renew(
        &mut self,
        peer: &PeerIdentity,
        request: &RenewRequest,
        now: u64,
    ) -> Result<Issued, StateError> {
        if peer.journey.is_some() || self.revocations().refuses(peer) {
            return Err(StateError::Renewal("only the node itself may ask"));
        }
        self.sign_again(&peer.node, request, now)
    }

    /// The holder's own renewal.
    ///
    /// # Errors
    /// Not the holder, or it cannot be written.
    pub fn renew_self(&mut self, now: u64) -> Result<(), StateError> {
        let renewal = self.start_renewal()?;
        let node = self.node().clone();
        let issued = self.sign_again(&node, &renewal.request, now)?;
        self.finish_renewal(renewal, issued)
    }

    fn sign_again(
        &mut self,
        node: &NodeName,
        request: &RenewRequest,
        now: u64,
    ) -> Result<Issued, StateError> {
        if self.roster().member(node).is_none() {
            return Err(StateError::UnknownMember(node.clone()));
        }
        let point = request.point(node)?;
        let holder = self.holder_mut()?;
        let issued = holder.authority.issue_node(node, &point, now)?;
        let mut book = holder.book.clone();
        // Recorded before it is handed out, so that every certificate that was signed can be revoked.
        book.record(node, &issued, now);
        holder.save_book(book)?;
        Ok(issued)
    }

    /// A copy of the CA with its key, as the content of a new private file. Anybody who has it can admit nodes:
    /// keep it off the cluster.
    ///
    /// # Errors
    /// Not the holder.
    pub fn backup(&self) -> Result<Concealed, StateError> {
        self.holder_ref()?.backup(self.signed_roster())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::NodeOptions;
    use crate::unix_now;
    use whim_attempts::{Attempt, Party};

    #[test]
    fn members_are_admitted_up_to_their_limit() {
        let now = unix_now();
        let directory = tempfile::tempdir().expect("directory");
        let name = |number: usize| NodeName::new(format!("n{number}")).expect("a name");
        let options = NodeOptions {
            node: name(0),
            addresses: vec!["n0.test:7946".to_owned()],
            class: String::new(),
        };
        let path = directory.path().join("state");
        let mut holder = State::init(&path, &options, None, now).expect("made");
        let mut roster = holder.roster().clone();
        let first = roster.members[0].clone();
        roster
            .members
            .extend((1..MEMBERS_MAX - 1).map(|number| Member {
                name: name(number),
                ..first.clone()
            }));
        holder.publish(roster, now).expect("a list below its limit");
        let token = holder.token(now).expect("token");
        let last = holder.token(now).expect("token");
        let mut join = |number: usize, token: &Token| {
            let key = crate::tls::issue::SecretKey::generate().expect("a key");
            let request = JoinRequest {
                version: JOIN_VERSION,
                token_id: token.id(),
                token_secret: token.secret(),
                node: name(number),
                addresses: vec!["n.test:7946".to_owned()],
                class: String::new(),
                key: RenewRequest::new(&name(number), &key).expect("a request"),
                clock: now,
            };
            holder.admit(&request, "192.0.2.2:1", now)
        };
        join(MEMBERS_MAX, &token).expect("the last one that there may be");
        let refusal = join(MEMBERS_MAX + 1, &last).expect_err("one more");
        assert_eq!(
            refusal.to_string(),
            "The cluster has as many members as one may have"
        );
        assert_eq!(holder.roster().members.len(), MEMBERS_MAX);
        let mut roster = holder.roster().clone();
        for member in &mut roster.members {
            member.class = "x".repeat(ROSTER_LENGTH_MAX / MEMBERS_MAX);
        }
        let error = holder
            .publish(roster, now)
            .expect_err("nobody would use it");
        let too_long = StateError::from(RosterError::TooLong);
        assert_eq!(error.to_string(), too_long.to_string());
        assert_eq!(holder.roster().members[0].class, "");
    }

    #[test]
    fn another_version_is_refused_by_a_sentence_with_both() {
        let now = unix_now();
        let directory = tempfile::tempdir().expect("directory");
        let node = |name| NodeOptions {
            node: NodeName::new(name).expect("a name"),
            addresses: vec!["n.test:7946".to_owned()],
            class: String::new(),
        };
        let path = directory.path().join("state");
        let mut n1 = State::init(&path, &node("n1"), None, now).expect("made");
        let token = n1.token(now).expect("token");
        for version in [0, JOIN_VERSION - 1, JOIN_VERSION + 1, u16::MAX] {
            let attempt = Attempt::new(Party::OldVersion, format!("join by version {version}"));
            let request = JoinRequest {
                version,
                token_id: token.id(),
                token_secret: token.secret(),
                node: NodeName::new("n2").expect("a name"),
                addresses: vec!["n2.test:7946".to_owned()],
                class: String::new(),
                key: n1.start_renewal().expect("a key").request,
                clock: now,
            };
            let refusal = n1
                .admit(&request, "192.0.2.2:1", now)
                .expect_err("another version");
            let text = refusal.to_string();
            for version in [JOIN_VERSION, version] {
                assert!(text.contains(&format!("version {version}")), "{text}");
            }
            assert_eq!(n1.roster().members.len(), 1);
            attempt.failed(refusal);
        }
    }
}
